/* replay [--mutations N] [--seed S] FILE_OR_FOLDER...: runs the fuzz target over inputs kept from
 * earlier runs, and over N mutations of them; S replays one mutation and prints it. */
#include <dirent.h>
#include <sys/stat.h>

#include "mutate.h"
#include "test.h"

enum { MAX_INPUTS = 4096, ROOM = 1 << 20 };

typedef struct input {
  uint8_t *data;
  size_t size;
} input;

static input inputs[MAX_INPUTS];
static size_t n_inputs;
static uint8_t data[ROOM];

static void keep(const uint8_t *bytes, size_t size) {
  if (n_inputs == MAX_INPUTS) return;
  inputs[n_inputs++] = (input){(uint8_t *)text_of(bytes, size), size};
}

/* The target aborts when something is wrong: the name of the input is then the last line. */
static void replay_file(const char *path) {
  FILE *f = fopen(path, "rb");
  if (!EXPECT(f != NULL)) {
    perror(path);
    return;
  }
  size_t size = fread(data, 1, sizeof data, f);
  fclose(f);
  printf("%s\n", path);
  fflush(stdout);
  EXPECT_INT(LLVMFuzzerTestOneInput(data, size), 0);
  keep(data, size);
}

static int by_name(const struct dirent **a, const struct dirent **b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

static void replay_path(const char *path) {
  struct stat info;
  struct dirent **entries;
  if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
    replay_file(path);
    return;
  }
  int n = scandir(path, &entries, NULL, by_name);
  for (int i = 0; i < n; i++) {
    char inner[512];
    snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name);
    if (entries[i]->d_name[0] != '.') replay_path(inner);
    free(entries[i]);
  }
  if (n >= 0) free(entries);
}

static void replay_mutation(uint64_t seed, bool show) {
  mutation m = {.state = seed, .data = data, .room = sizeof data};
  const input *from = &inputs[mutation_below(&m, n_inputs)];
  memcpy(data, from->data, from->size);
  m.size = from->size;
  mutate(&m, seed % 2);
  if (show) fwrite(data, 1, m.size, stdout);
  else printf("--seed %llu\n", (unsigned long long)seed);
  fflush(stdout);
  EXPECT_INT(LLVMFuzzerTestOneInput(data, m.size), 0);
}

int main(int argc, char **argv) {
  uint64_t mutations = 0, seed = 0;
  bool one = false;
  for (int i = 1; i < argc; i++) {
    if (i + 1 < argc && strcmp(argv[i], "--mutations") == 0)
      mutations = strtoull(argv[++i], NULL, 0);
    else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0)
      one = true, seed = strtoull(argv[++i], NULL, 0);
    else replay_path(argv[i]);
  }
  (void)EXPECT(n_inputs > 0);
  if (one && n_inputs) replay_mutation(seed, true);
  for (uint64_t k = 0; n_inputs && !one && k < mutations; k++) replay_mutation(k, false);
  for (size_t i = 0; i < n_inputs; i++) free(inputs[i].data);
  return test_finish();
}
