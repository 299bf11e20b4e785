/* How long a program in a certain order takes, by the estimate. */
#include <math.h>

#include "order/internal.h"

typedef struct timeline {
  const order_graph *g;
  double now_ns;  /* of the device */
  double free_ns; /* when its link has sent all that was posted */
  double *end_ns; /* by node: of what it posted */
} timeline;

/* What it waits for has arrived. */
static void meet(timeline *t, const order_node *n) {
  for (uint32_t k = 0; k < n->before.len; k++)
    t->now_ns = fmax(t->now_ns, t->end_ns[n->before.data[k]]);
}

/* Communications of one device follow each other. */
static double send(timeline *t, double link_ns) {
  t->free_ns = fmax(t->free_ns, t->now_ns) + link_ns;
  return t->free_ns;
}

/* What waits for its own communications, such as stream loops, overlaps them with its work. */
static void pass_node(timeline *t, uint32_t i) {
  const order_node *n = &t->g->nodes.data[i];
  if (n->kind != ORDER_POST) meet(t, n);
  if (n->posted.len) {
    t->now_ns += n->work_ns;
    t->end_ns[i] = send(t, n->link_ns);
    return;
  }
  double sent_ns = n->link_ns > 0 ? send(t, n->link_ns) : 0;
  t->now_ns = fmax(t->now_ns + n->work_ns, sent_ns);
}

double order_total_ns(const order_graph *g, const order_numbers *written) {
  timeline t = {.g = g, .end_ns = ARENA_ARRAY(g->scratch, g->nodes.len, double)};
  for (uint32_t k = 0; k < written->len; k++) pass_node(&t, written->data[k]);
  return fmax(t.now_ns, t.free_ns);
}
