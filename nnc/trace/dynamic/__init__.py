"""The dynamic graph: commands run at once and are recorded, to be differentiated afterwards."""
