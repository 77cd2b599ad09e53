"""Files of tasks: pull outputs, remove leftovers."""
