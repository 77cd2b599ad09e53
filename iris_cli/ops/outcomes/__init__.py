"""How attempts and jobs ended, in words, and how long they ran."""
