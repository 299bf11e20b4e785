/* replay FILE_OR_FOLDER...: runs the fuzz target over inputs kept from earlier runs. */
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "test.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The target aborts when something is wrong: the name of the input is then the last line. */
static void replay_file(const char *path) {
  static uint8_t data[1 << 20];
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

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) replay_path(argv[i]);
  return test_finish();
}
