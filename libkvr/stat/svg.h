/*
 * Small charts as inline SVG: a frame with titled axes, and lines, bars and cells in it. Colours
 * are CSS variables of the page (--ink, --grid, --c0 …), so that light and dark are the page's.
 * Internal to stat/.
 */
#ifndef KVR_STAT_SVG_H
#define KVR_STAT_SVG_H

#include "base/buffer.h"

struct kvr_axis {
    double least, most;
    bool logarithmic;
    bool percent;      /* values are shares, shown in % */
    const char *title; /* with its unit */
};

struct kvr_chart {
    struct kvr_buffer *out;
    double width, height, left, right, top, bottom; /* margins inside the picture */
    struct kvr_axis x, y;
};

enum { KVR_CHART_WIDTH = 760, KVR_CHART_HEIGHT = 340 };

/* Opens the picture and draws frame, grid, ticks and titles. An axis without x.title gets no ticks:
 * the caller labels it. */
void kvr_chart_begin(struct kvr_chart *chart, const char *description);
void kvr_chart_end(struct kvr_chart *chart);

double kvr_chart_x(const struct kvr_chart *chart, double value);
double kvr_chart_y(const struct kvr_chart *chart, double value);

/* A line in the colour of series 0, 1, 2; NaN breaks it. */
void kvr_chart_line(struct kvr_chart *chart, int series, const double *x, const double *y,
    size_t count, bool steps);

/* A rectangle in values of the axes. */
void kvr_chart_rectangle(
    struct kvr_chart *chart, const char *style, double x0, double y0, double x1, double y1);

/* Text in picture coordinates; anchor is start, middle or end. */
void kvr_chart_text(struct kvr_chart *chart, double x, double y, const char *anchor,
    const char *style, const char *text, size_t length);

/* A legend entry of a series, number `place` from the left. */
void kvr_chart_legend(struct kvr_chart *chart, int series, int place, const char *text);

/* Text with &, <, > and quotes escaped. */
void kvr_html_text(struct kvr_buffer *out, const char *text, size_t length);

#endif
