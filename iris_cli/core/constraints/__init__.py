"""What a job asks of a worker's attributes: types, syntax, canonical keys."""
