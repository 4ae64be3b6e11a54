"""The rules of a diagnosis: functions from a job to what they found."""
