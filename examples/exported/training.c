/* Trains on points of two spirals with the functions that training.py exported: outputs become the next step's inputs. */

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "start.h"
#include "training.h"

enum { BATCH = 64, STEPS = 600, STATE = training_INPUTS - 2 };

static void *room(int64_t bytes) {
  void *memory = calloc(1, (size_t)bytes + 1);
  if (!memory) exit(1);
  return memory;
}

static void *arena_of(int64_t bytes) { return aligned_alloc(64, (size_t)(bytes / 64 + 1) * 64); }

static float uniform(void) { return (float)rand() / (float)RAND_MAX; }

static void draw(float *points, int32_t *labels) {
  for (int i = 0; i < BATCH; i++) {
    float turn = 4.0f * uniform(), radius = 0.2f + turn / 5.0f;
    labels[i] = rand() & 1;
    float angle = turn * 1.5f + 3.14159265f * (float)labels[i];
    points[2 * i] = radius * cosf(angle);
    points[2 * i + 1] = radius * sinf(angle);
  }
}

int main(void) {
  float points[2 * BATCH], loss = 0;
  int32_t labels[BATCH];
  uint32_t key[2] = {0, 7};
  void *now[STATE], *next[STATE], *outputs[training_OUTPUTS] = {&loss};
  const void *inputs[training_INPUTS], *keys[] = {key};
  void *arena = arena_of(training_ARENA_BYTES > start_ARENA_BYTES ? training_ARENA_BYTES : start_ARENA_BYTES);
  for (int i = 0; i < STATE; i++) {
    now[i] = room(training_inputs()[i].bytes);
    next[i] = room(training_inputs()[i].bytes);
  }
  if (start(keys, now, arena)) return 1;
  for (int step = 0; step < STEPS; step++) {
    draw(points, labels);
    for (int i = 0; i < STATE; i++) inputs[i] = now[i], outputs[i + 1] = next[i];
    inputs[STATE] = points;
    inputs[STATE + 1] = labels;
    int error = training(inputs, outputs, arena);
    if (error) return fprintf(stderr, "%s\n", training_error(error)), 1;
    for (int i = 0; i < STATE; i++) {
      void *before = now[i];
      now[i] = next[i], next[i] = before;
    }
    if (step % 100 == 0 || step == STEPS - 1) printf("step %d: loss %.4f\n", step, (double)loss);
  }
  for (int i = 0; i < STATE; i++) free(now[i]), free(next[i]);
  free(arena);
  return loss < 0.3f ? 0 : 1;
}
