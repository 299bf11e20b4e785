/* Shared by the files that draw. Lengths are in pixels. */
#ifndef WEIR_DRAW_INTERNAL_H
#define WEIR_DRAW_INTERNAL_H

#include "draw/draw.h"

typedef struct draw_picture {
  const ir_func *host;
  const ir_env *env;
  arena *scratch;
  strbuf *out;
  double width, y; /* used so far */
} draw_picture;

enum { DRAW_MARGIN = 16, DRAW_MOST = 1200 };

/* ---- svg.c ---- */
void draw_rect(draw_picture *p, const char *class, double x, double y, double w, double h);
/* A rectangle in the colour of a device. */
void draw_device_rect(draw_picture *p, int64_t device, double x, double y, double w, double h);
void draw_text(draw_picture *p, const char *class, double x, double y, const char *text);
/* Text in a fixed-width font, cut off at width `w`; the whole text is shown when the pointer is on it. */
void draw_cut_text(draw_picture *p, const char *class, double x, double y, double w,
                   const char *text);
/* The same; `title` is shown when the pointer is on it. */
void draw_titled_text(draw_picture *p, const char *class, double x, double y, double w,
                      const char *text, const char *title);
double draw_text_width(const char *text); /* of its first line, in that font */
/* A path with an arrow at its end. */
void draw_arrow(draw_picture *p, const char *class, double x0, double y0, double x1, double y1);

/* ---- parts, below what was drawn before ---- */
void draw_meshes(draw_picture *p);  /* pieces.c */
void draw_tensors(draw_picture *p); /* pieces.c */
void draw_lanes(draw_picture *p);   /* lanes.c */

#endif
