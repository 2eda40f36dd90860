/* Finds rates of reaction from measured shares, by gradients of the solver that stiff.py exported. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "stiff.h"

int main(void) {
  double rates[3] = {log(0.06), log(3e7), log(1e4)}, gradient[3], error = 0, step = 4.0;
  const double measured[3] = {0.01479697, 0.09446356, 0.28417098};
  const void *inputs[stiff_INPUTS] = {rates, measured};
  void *outputs[stiff_OUTPUTS] = {&error, gradient};
  void *arena = aligned_alloc(stiff_ALIGNMENT, (stiff_ARENA_BYTES / stiff_ALIGNMENT + 1) * stiff_ALIGNMENT);
  if (!arena) return 1;
  for (int i = 0; i < 60; i++) {
    int problem = stiff(inputs, outputs, arena);
    if (problem) return fprintf(stderr, "%s\n", stiff_error(problem)), 1;
    if (i % 10 == 0) printf("%2d: error %.3e, first rate %.5f\n", i, error, exp(rates[0]));
    rates[0] -= step * gradient[0];
  }
  printf("first rate: %.4f\n", exp(rates[0]));
  free(arena);
  return fabs(exp(rates[0]) - 0.04) < 1e-3 ? 0 : 1;
}
