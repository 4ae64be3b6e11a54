"""The rules of a diagnosis, one module each: a function from a job to what it found."""
