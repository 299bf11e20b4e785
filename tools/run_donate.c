/* Donated inputs: outputs that are computed where an input is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

/* ---- INPUT[=OUTPUT] ---- */
static run_tensor *find(const run_list *l, const char *name, size_t length) {
  for (size_t i = 0; i < l->len; i++)
    if (strlen(l->data[i].info.name) == length && memcmp(l->data[i].info.name, name, length) == 0)
      return &l->data[i];
  return NULL;
}

static int fits(const run_state *s, const run_tensor *in, const run_tensor *out, bool *result) {
  int64_t a[WEIR_MAX_RANK], b[WEIR_MAX_RANK];
  size_t n, m;
  CLI_CALL(weir_shapes_of(s->shapes, in->tensor, a, &n));
  CLI_CALL(weir_shapes_of(s->shapes, out->tensor, b, &m));
  *result = in->info.dtype == out->info.dtype && n == m && memcmp(a, b, n * sizeof *a) == 0;
  return 0;
}

/* Finds the only output that fits the input and has no donor yet. */
static int find_fitting(const run_state *s, const run_tensor *in, run_tensor **result) {
  size_t n = 0;
  for (size_t i = 0; i < s->outputs.len; i++) {
    run_tensor *out = &s->outputs.data[i];
    bool fit;
    CLI_TRY(fits(s, in, out, &fit));
    if (!fit || out->donor) continue;
    *result = out;
    n++;
  }
  if (n == 1) return 0;
  return cli_usage("--donate %s: %s outputs have its dtype and shape; write --donate %s=OUTPUT",
                   in->info.name, n ? "several" : "no", in->info.name);
}

static int donate(const run_state *s, const char *text) {
  const char *equals = strchr(text, '=');
  size_t length = equals ? (size_t)(equals - text) : strlen(text);
  run_tensor *in = find(&s->inputs, text, length), *out = NULL;
  bool fit;
  if (!in) return cli_usage("--donate %s: there is no input '%.*s'", text, (int)length, text);
  for (size_t i = 0; i < s->outputs.len; i++)
    if (s->outputs.data[i].donor == in)
      return cli_usage("--donate %s: '%s' is given to '%s' already", text, in->info.name,
                       s->outputs.data[i].info.name);
  if (equals) out = find(&s->outputs, equals + 1, strlen(equals + 1));
  else CLI_TRY(find_fitting(s, in, &out));
  if (!out) return cli_usage("--donate %s: there is no output '%s'", text, equals + 1);
  if (out->donor)
    return cli_usage("--donate %s: '%s' is given '%s' already", text, out->info.name,
                     out->donor->info.name);
  CLI_TRY(fits(s, in, out, &fit));
  if (!fit)
    return cli_usage("--donate %s: '%s' and '%s' differ in dtype or shape", text, in->info.name,
                     out->info.name);
  if (in->sharded != out->sharded)
    return cli_usage("--donate %s: files of both are whole, or of both one per device", text);
  out->donor = in;
  return 0;
}

int run_take_donations(run_state *s) {
  const char *text;
  for (size_t i = 0; (text = cli_text(s->c, "donate", i)) != NULL; i++) CLI_TRY(donate(s, text));
  return 0;
}

/* ---- running ---- */
static void copy(const weir_array *from, const weir_array *to) {
  if (from && to)
    memcpy(weir_array_tensor(to)->data, weir_array_tensor(from)->data, run_size_bytes(from));
}

void run_fill_donated(const run_state *s, weir_array **(*slot)(run_tensor *t), bool again) {
  for (size_t i = 0; i < s->outputs.len; i++) {
    run_tensor *out = &s->outputs.data[i];
    if (!out->donor) continue;
    if (!out->sharded) copy(out->donor->value, *slot(out));
    for (size_t k = 0; k < out->n_shards; k++)
      copy(out->donor->shards[k].value, again ? out->shards[k].again : out->shards[k].value);
  }
}

int64_t *run_donated_list(const run_state *s) {
  int64_t *list = calloc(s->outputs.len + 1, sizeof *list);
  for (size_t i = 0; list && i < s->outputs.len; i++) {
    const run_tensor *donor = s->outputs.data[i].donor;
    list[i] = donor ? (int64_t)(donor - s->inputs.data) : -1;
  }
  return list;
}

/* Prints that not all were overwritten; which of several it was is not known. */
static int refuse_whole(const run_state *s) {
  for (size_t i = 0; i < s->outputs.len; i++) {
    const run_tensor *out = &s->outputs.data[i];
    if (!out->donor || out->sharded) continue;
    const char *in = out->donor->info.name, *name = out->info.name;
    return cli_usage("--donate %s=%s: devices share parts of the whole tensor, or have parts that "
                     "are not contiguous in it; give one file per device: --input %s=%s.%%r.npy "
                     "--output %s=%s.%%r.npy",
                     in, name, in, in, name, name);
  }
  return cli_usage("--donate: devices share parts of the tensor, so it has to be copied");
}

int run_check_donated(const run_state *s) {
  weir_counts n = {.struct_size = sizeof n};
  if (!cli_text(s->c, "donate", 0)) return 0;
  if (strcmp(weir_program_device(s->program), "ref") == 0)
    return cli_usage("--donate needs a device: the reference evaluator overwrites nothing");
  CLI_CALL(weir_program_counts(s->program, &n));
  if (n.copied == 0) return 0;
  for (size_t i = 0; i < s->outputs.len; i++) {
    const run_tensor *out = &s->outputs.data[i];
    char *why = NULL;
    if (!out->donor) continue;
    CLI_CALL(weir_program_donation(s->program, s->shapes, (size_t)(out->donor - s->inputs.data), i,
                                   &why));
    if (!why) continue;
    int code = cli_usage("--donate %s=%s: it cannot be overwritten: %s", out->donor->info.name,
                         out->info.name, why);
    weir_string_free(why);
    return code;
  }
  return refuse_whole(s);
}
