/* Reads the digit in a PGM file of 28 x 28 pixels with the network that lenet.py exported. */

#include <stdio.h>
#include <stdlib.h>

#include "lenet.h"

enum { SIDE = 28, DIGITS = 10 };

/* The next number of a PGM file's head, behind spaces and comments; -1 where there is none. */
static int number(FILE *file) {
  int found, c;
  while ((c = fgetc(file)) == '#' || c == ' ' || c == '\n' || c == '\r' || c == '\t')
    while (c == '#' && (c = fgetc(file)) != '\n' && c != EOF) c = '#';
  ungetc(c, file);
  return fscanf(file, "%d", &found) == 1 ? found : -1;
}

static int read_picture(const char *path, float *pixels) {
  FILE *file = fopen(path, "rb");
  if (!file) return perror(path), 0;
  int good = fgetc(file) == 'P' && fgetc(file) == '5' && number(file) == SIDE && number(file) == SIDE;
  int white = good ? number(file) : -1;
  good = white > 0 && white < 256 && fgetc(file) != EOF;
  for (int i = 0; good && i < SIDE * SIDE; i++) {
    int c = fgetc(file);
    good = c != EOF;
    pixels[i] = (float)c / (float)white;
  }
  fclose(file);
  if (!good) fprintf(stderr, "%s: not a PGM file of %d x %d bytes\n", path, SIDE, SIDE);
  return good;
}

int main(int count, char **arguments) {
  static float pixels[SIDE * SIDE], shares[DIGITS];
  const void *inputs[lenet_INPUTS] = {pixels};
  void *outputs[lenet_OUTPUTS] = {shares};
  if (count != 2) return fprintf(stderr, "usage: %s picture.pgm\n", arguments[0]), 2;
  if (!read_picture(arguments[1], pixels)) return 1;
  void *arena = aligned_alloc(lenet_ALIGNMENT, (lenet_ARENA_BYTES / lenet_ALIGNMENT + 1) * lenet_ALIGNMENT);
  if (!arena) return 1;
  int error = lenet(inputs, outputs, arena), best = 0;
  if (error) return fprintf(stderr, "%s\n", lenet_error(error)), 1;
  for (int digit = 0; digit < DIGITS; digit++)
    if (shares[digit] > shares[best]) best = digit;
  printf("%d (%.1f %%)\n", best, 100.0 * (double)shares[best]);
  free(arena);
  return 0;
}
