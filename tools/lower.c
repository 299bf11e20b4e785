#include <stdio.h>

#include "cli.h"

/* The rank must be one of the devices. */
static int check_rank(const cli *c, const weir_fusion *f) {
  int64_t devices = cli_int(c, "devices"), rank = cli_int(c, "rank");
  if (devices == 0) devices = weir_fusion_devices(f);
  if (rank < devices) return 0;
  return cli_usage("there is no rank %lld among %lld devices", (long long)rank, (long long)devices);
}

/* One host program serves every shape. If all extents are known, it is the one that a run takes. Under
 * mpirun, rank 0 prints for all. */
static int lower_for_shapes(const cli *c, weir_fusion *f) {
  weir_shapes *s = NULL;
  char *text = NULL;
  CLI_TRY(cli_known_shapes(c, f, &s));
  int code = cli_status(weir_lower_for(f, c->options, s, cli_text(c, "style", 0), &text));
  if (code == 0 && weir_launch_rank() <= 0) cli_print(c, text);
  weir_string_free(text);
  weir_shapes_destroy(s);
  return code;
}

static int lower(const cli *c, weir_module *m) {
  const char *name = cli_text(c, "fusion", 0);
  weir_fusion *f = NULL;
  CLI_CALL(weir_module_find(m, name[0] ? name : NULL, &f));
  CLI_TRY(cli_check_devices(c, f));
  CLI_TRY(check_rank(c, f));
  return lower_for_shapes(c, f);
}

int cli_lower(const cli *c) {
  const char *path;
  weir_module *m = NULL;
  CLI_TRY(cli_file(c, &path));
  CLI_TRY(cli_load(path, &m));
  int code = lower(c, m);
  weir_module_destroy(m);
  return code;
}
