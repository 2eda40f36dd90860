"""Functions of real numbers, printed without branches on any number of lanes, in float32 and float64.

Errors are at most 2 units in the last place, 4 for powers and the gamma family. Coefficients were found by Remez's exchange in
40 digits, then rounded from the lowest power up, each time with the others fitted anew; comments give the error that is left.
"""
