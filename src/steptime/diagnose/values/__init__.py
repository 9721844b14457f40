"""The values of a Diagnosis: findings, lasting shifts, the roofline and the waterfall."""
