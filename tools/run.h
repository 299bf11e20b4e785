/* The parts of `weir run`: run.c is the command, run_files.c has inputs and outputs, run_shards.c those with
 * one file per device, run_donate.c donated inputs, run_report.c the report. */
#ifndef WEIR_TOOLS_RUN_H
#define WEIR_TOOLS_RUN_H

#include "cli.h"

/* What a device of this process holds of a tensor; all NULL: nothing. */
typedef struct run_shard {
  char *path;
  weir_array *value, *again;
} run_shard;

/* An input or output of the fusion. */
typedef struct run_tensor {
  weir_tensor tensor;
  weir_tensor_info info;
  struct run_tensor *donor; /* of an output: the input whose memory it is given; NULL: none */
  const char *pattern;      /* of --input or --output; NULL: none */
  bool sharded;             /* the pattern has %r */
  char *path;               /* the file, unless sharded */
  run_shard *shards;        /* if sharded: one per device of this process */
  size_t n_shards;
  weir_array *value; /* the whole tensor; if sharded, only for --check, else NULL */
  /* Instead of `value`, if the device computes nothing: a shape without data. */
  weir_dl_tensor bare;
  int64_t extents[WEIR_MAX_RANK];
  weir_array *again;    /* an output of a further run, for comparison */
  weir_verdict verdict; /* of an output, with --check */
} run_tensor;

typedef struct run_list {
  run_tensor *data;
  size_t len;
} run_list;

/* An allocator that measures. */
typedef struct run_meter {
  int64_t live_bytes, peak_bytes; /* now, and the most while running */
} run_meter;

typedef struct run_state {
  const cli *c;
  weir_module *module;
  weir_fusion *fusion;
  weir_shapes *shapes;
  weir_program *program;
  weir_profile *profile; /* of the last run; NULL unless --stats, --trace or sim asks for it */
  bool computes;         /* the device computes values; sim and null do not */
  weir_devices devices;
  run_list inputs, outputs;
  bool repeats;       /* more than one run */
  bool is_last;       /* this is the last run, which is profiled */
  char problem[1000]; /* what went wrong with a shard of this process */
  run_meter meter;
  double *times_s; /* one per repeat, sorted at the end */
  size_t n_times;
  int64_t allocations; /* of all runs except the first and the last */
  double rtol;         /* 0: not given */
  bool check_failed;
  weir_bound bound; /* with --stats, on several devices; bound_s 0: not known */
} run_state;

/* ---- run_files.c ---- */
/* Finds the tensors, reads the given files, determines all extents, fills the other inputs. */
int run_prepare(run_state *s);
/* Writes the outputs that have a path, all or none; if processes write shards, those of all of them or none. `code`
 * is the exit code of this process so far; the result is that of all processes. */
int run_save(const run_state *s, int code);
/* Makes zeroed arrays for all whole outputs; `slot` says where. On a device that computes nothing
 * they have no data. */
int run_allocate(const run_state *s, weir_array **(*slot)(run_tensor *t));
int run_allocate_one(const run_state *s, const run_tensor *t, weir_array **result);
void run_list_free(run_list *l);
int run_out_of_memory(void);
/* Can the file be written at the end? If not, `why` is the message. */
bool run_may_write(const char *path, char *why, size_t size_bytes);
/* Do two paths name one file? Links are followed. */
bool run_same_target(const char *a, const char *b);

/* ---- run_shards.c ---- */
/* Checks a pattern, in which %r stands for the rank and %% for a percent sign. *sharded: it has %r. */
int run_check_pattern(const char *option, const char *text, bool *sharded);
/* The path that a pattern means for a rank, to be freed; NULL: no memory. */
char *run_expand(const char *pattern, int64_t rank);
bool run_any_sharded(const run_list *l);
/* When the program is compiled: reads the shards of inputs, makes those of outputs. */
int run_take_shards(run_state *s);
/* After the runs: compares replicas of shards; with --check assembles whole outputs. */
int run_join_outputs(run_state *s);
/* The tensors of the shards of a list: one per device for each entry that is sharded. `lists` is NULL if
 * none is. */
typedef struct run_shard_lists {
  const weir_dl_tensor *const **lists;
  size_t len;
} run_shard_lists;
bool run_shard_lists_make(const run_list *l, bool again, run_shard_lists *result);
void run_shard_lists_free(const run_shard_lists *lists);

/* ---- run_donate.c ---- */
/* Takes --donate, when shapes are known. */
int run_take_donations(run_state *s);
/* Before a run whose outputs go to `slot`: copies donated inputs there. The inputs themselves are kept for other runs
 * and for --check. */
void run_fill_donated(const run_state *s, weir_array **(*slot)(run_tensor *t), bool again);
/* weir_run_args.donated: by output the number of its donor, or -1; NULL: no memory. */
int64_t *run_donated_list(const run_state *s);
/* After the runs: checks that all donated inputs were overwritten in place; if not, prints why. */
int run_check_donated(const run_state *s);

/* ---- run_report.c ---- */
int run_report(const run_state *s);
size_t run_size_bytes(const weir_array *a);

/* With --stats: finds the bound and the predicted time. All processes call it. */
int run_bound(run_state *s);

#endif
