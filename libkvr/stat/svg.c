#include "stat/svg.h"

#include <math.h>
#include <stdio.h>

#define print kvr_buffer_append_format

void kvr_html_text(struct kvr_buffer *out, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        switch (text[i]) {
        case '&':
            kvr_buffer_append_text(out, "&amp;");
            break;
        case '<':
            kvr_buffer_append_text(out, "&lt;");
            break;
        case '>':
            kvr_buffer_append_text(out, "&gt;");
            break;
        case '"':
            kvr_buffer_append_text(out, "&quot;");
            break;
        default:
            kvr_buffer_append_byte(out, text[i]);
        }
    }
}

static double place(const struct kvr_axis *axis, double value)
{
    if (axis->logarithmic)
        return log(fmax(value, axis->least) / axis->least) / log(axis->most / axis->least);
    return (value - axis->least) / (axis->most - axis->least);
}

double kvr_chart_x(const struct kvr_chart *chart, double value)
{
    return chart->left + place(&chart->x, value) * (chart->width - chart->left - chart->right);
}

double kvr_chart_y(const struct kvr_chart *chart, double value)
{
    return chart->height - chart->bottom -
           place(&chart->y, value) * (chart->height - chart->top - chart->bottom);
}

void kvr_chart_text(struct kvr_chart *chart, double x, double y, const char *anchor,
    const char *style, const char *text, size_t length)
{
    print(chart->out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">", x, y, anchor,
        style);
    kvr_html_text(chart->out, text, length);
    kvr_buffer_append_text(chart->out, "</text>\n");
}

static void tick_text(char *text, size_t size, const struct kvr_axis *axis, double value)
{
    if (axis->percent)
        snprintf(text, size, "%g %%", round(value * 1e6) / 1e4);
    else if (fabs(value) >= 1e6)
        snprintf(text, size, "%gM", value / 1e6);
    else if (fabs(value) >= 1e4)
        snprintf(text, size, "%gk", value / 1e3);
    else
        snprintf(text, size, "%g", value);
}

static void tick(struct kvr_chart *chart, bool horizontal, double value)
{
    char text[40];
    const struct kvr_axis *axis = horizontal ? &chart->x : &chart->y;
    double floor_y = chart->height - chart->bottom;

    tick_text(text, sizeof text, axis, value);
    if (horizontal) {
        double x = kvr_chart_x(chart, value);
        print(chart->out,
            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>\n", x,
            chart->top, x, floor_y);
        kvr_chart_text(chart, x, floor_y + 18, "middle", "tick", text, strlen(text));
    } else {
        double y = kvr_chart_y(chart, value);
        print(chart->out,
            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>\n", chart->left,
            y, chart->width - chart->right, y);
        kvr_chart_text(chart, chart->left - 8, y + 4.5, "end", "tick", text, strlen(text));
    }
}

/* Some five ticks at 1, 2 or 5 times a power of ten; on a logarithmic axis every decade, with 2 and
 * 5 where there are few of them. */
static void ticks(struct kvr_chart *chart, bool horizontal)
{
    const struct kvr_axis *axis = horizontal ? &chart->x : &chart->y;

    if (axis->logarithmic) {
        bool few = axis->most / axis->least < 1e3;
        for (double decade = pow(10, floor(log10(axis->least))); decade <= axis->most;
             decade *= 10) {
            for (int i = 0; i < (few ? 3 : 1); i++) {
                double value = decade * (double[]){1, 2, 5}[i];
                if (value >= axis->least * 0.999 && value <= axis->most * 1.001)
                    tick(chart, horizontal, value);
            }
        }
        return;
    }
    double rough = (axis->most - axis->least) / 5, power = pow(10, floor(log10(rough)));
    double step = power * (rough / power > 5      ? 10
                              : rough / power > 2 ? 5
                              : rough / power > 1 ? 2
                                                  : 1);
    for (int i = 0; i <= 12; i++) {
        double value = (ceil(axis->least / step - 1e-9) + i) * step;
        if (value <= axis->most + step * 1e-6)
            tick(chart, horizontal, value);
    }
}

void kvr_chart_begin(struct kvr_chart *chart, const char *description)
{
    struct kvr_buffer *out = chart->out;
    double middle_x = (chart->left + chart->width - chart->right) / 2;
    double middle_y = (chart->top + chart->height - chart->bottom) / 2;

    print(out, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"", chart->width,
        chart->height);
    kvr_html_text(out, description, strlen(description));
    kvr_buffer_append_text(out, "\">\n");
    if (chart->x.title) {
        ticks(chart, true);
        kvr_chart_text(chart, middle_x, chart->height - 8, "middle", "axis", chart->x.title,
            strlen(chart->x.title));
    }
    if (chart->y.title) {
        ticks(chart, false);
        print(out,
            "<text transform=\"translate(18 %.1f) rotate(-90)\" text-anchor=\"middle\" "
            "class=\"axis\">",
            middle_y);
        kvr_html_text(out, chart->y.title, strlen(chart->y.title));
        kvr_buffer_append_text(out, "</text>\n");
    }
}

void kvr_chart_end(struct kvr_chart *chart)
{
    print(chart->out,
        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"frame\"/>\n</svg>\n",
        chart->left, chart->top, chart->width - chart->left - chart->right,
        chart->height - chart->top - chart->bottom);
}

void kvr_chart_line(
    struct kvr_chart *chart, int series, const double *x, const double *y, size_t count, bool steps)
{
    bool drawing = false;

    kvr_buffer_append_text(chart->out, "<path d=\"");
    for (size_t i = 0; i < count; i++) {
        if (isnan(y[i])) {
            drawing = false;
            continue;
        }
        double to_x = kvr_chart_x(chart, x[i]), to_y = kvr_chart_y(chart, y[i]);
        if (drawing && steps)
            print(chart->out, "H%.1fV%.1f", to_x, to_y);
        else
            print(chart->out, "%c%.1f %.1f", drawing ? 'L' : 'M', to_x, to_y);
        drawing = true;
    }
    print(chart->out, "\" class=\"line\" style=\"stroke:var(--c%d)\"/>\n", series);
}

void kvr_chart_rectangle(
    struct kvr_chart *chart, const char *style, double x0, double y0, double x1, double y1)
{
    double left = kvr_chart_x(chart, x0), right = kvr_chart_x(chart, x1);
    double low = kvr_chart_y(chart, y0), high = kvr_chart_y(chart, y1);

    print(chart->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" style=\"%s\"/>\n",
        left, high, right - left, low - high, style);
}

void kvr_chart_legend(struct kvr_chart *chart, int series, int place_number, const char *text)
{
    double x = chart->left + 10 + place_number * 210, y = chart->top - 14;

    print(chart->out,
        "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"line\" "
        "style=\"stroke:var(--c%d)\"/>\n",
        x, y, x + 26, y, series);
    kvr_chart_text(chart, x + 33, y + 5, "start", "tick", text, strlen(text));
}
