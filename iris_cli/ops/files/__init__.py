"""Files of tasks: pull outputs, delete unneeded files."""
