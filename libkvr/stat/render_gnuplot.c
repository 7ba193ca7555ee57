/* --plot: a gnuplot script that carries its data. */
#include "stat/render.h"

#include <math.h>
#include <stdio.h>

#define print kvr_buffer_append_format

enum { CDF_POINTS = 400, STEPS = 160, LABEL_CHARACTERS = 12, BAR_LABELS = 9 };

/* A file name inside single quotes. */
static void quoted(struct kvr_buffer *out, const char *text)
{
    kvr_buffer_append_byte(out, '\'');
    for (; *text; text++) {
        if (*text == '\'')
            kvr_buffer_append_byte(out, '\'');
        kvr_buffer_append_byte(out, *text);
    }
    kvr_buffer_append_byte(out, '\'');
}

static void number(struct kvr_buffer *out, double value)
{
    if (isfinite(value))
        print(out, " %.6g", value);
    else
        kvr_buffer_append_text(out, " NaN");
}

/* The bytes of a domain or a port that all names end with: they only take room. */
static size_t shared_end(const struct kvr_render *render)
{
    const struct kvr_group *names = render->report->worker_names.items;
    const uint32_t *order = render->run->load_workers;
    uint32_t count = render->run->view.load_count;

    if (count < 2)
        return 0;
    const struct kvr_group *first = &names[order[0]];
    size_t shared = first->length;
    for (uint32_t i = 1; i < count; i++) {
        const struct kvr_group *name = &names[order[i]];
        size_t same = 0;
        while (same < shared && same < name->length &&
               first->name[first->length - 1 - same] == name->name[name->length - 1 - same])
            same++;
        shared = same;
    }
    while (shared > 0 && !strchr(".:/", first->name[first->length - shared]))
        shared--;
    return shared;
}

/* Labels stand between double quotes; what gnuplot would read in them is left out. */
static void label(struct kvr_buffer *out, const struct kvr_group *name, size_t shared)
{
    char text[KVR_SHORT_NAME_BYTES], own[KVR_GROUP_NAME_BYTES + 32];

    snprintf(own, sizeof own, "%.*s", (int)(name->length - shared), name->name);
    kvr_render_short_name(text, own, LABEL_CHARACTERS);
    for (const char *at = text; *at; at++) {
        bool plain = (*at >= '0' && *at <= '9') || (*at >= 'a' && *at <= 'z') ||
                     (*at >= 'A' && *at <= 'Z') || strchr("-.:/ ()", *at);
        kvr_buffer_append_byte(out, plain ? *at : '.');
    }
}

/* gnuplot takes a plot without any point for a failure: a line out of sight, and words in sight. */
static void nothing(struct kvr_buffer *out, const char *y_range)
{
    print(out,
        "set label 1 'nothing known' at graph 0.5,0.5 center\nset xrange [1:1000]\nunset xtics\n"
        "set yrange [%s]\nplot -1 notitle\nset xrange [*:*]\nset xtics autofreq\nunset label 1\n",
        y_range);
}

static void cdf(struct kvr_buffer *out, const struct kvr_view *view)
{
    static const char *const titles[] = {"new", "later turns", "unknown"};
    struct kvr_cdf_point points[CDF_POINTS];
    const struct kvr_sketch *sketches = &view->tally->sketches[KVR_SKETCH_TTFT_NEW];
    double least = kvr_render_cdf_start(view);
    bool any = false;

    for (int kind = 0; kind < KVR_KIND_COUNT; kind++) {
        size_t count = kvr_render_cdf(&sketches[kind], view->scale, points, CDF_POINTS);
        print(out, "$cdf%d << EOD\n", kind);
        for (size_t i = 0; i < count; i++)
            print(out, "%.6g %.6g\n", fmax(points[i].value, least), points[i].share * 100);
        kvr_buffer_append_text(out, "EOD\n");
        any |= count != 0;
    }
    kvr_buffer_append_text(out,
        "set title 'Time to first token by kind of conversation'\nset xlabel 'time to first token, "
        "ms'\n"
        "set ylabel 'share of requests, %'\nset logscale x\nset yrange [0:100]\n"
        "set key bottom right samplen 2\n");
    if (!any) {
        nothing(out, "0:100");
    } else {
        bool first = true;
        kvr_buffer_append_text(out, "plot");
        for (int kind = 0; kind < KVR_KIND_COUNT; kind++) {
            if (!sketches[kind].count)
                continue;
            print(out, "%s $cdf%d using 1:2 with steps lw 3 lc %d title '%s'", first ? "" : ",",
                kind, kind + 1, titles[kind]);
            first = false;
        }
        kvr_buffer_append_byte(out, '\n');
    }
    kvr_buffer_append_text(out, "unset logscale x\n");
}

static void histogram(struct kvr_buffer *out, const struct kvr_view *view)
{
    const struct kvr_sketch *sketch = &view->tally->sketches[KVR_SKETCH_MATCH];
    struct kvr_match_bar bars[KVR_MATCH_BARS];
    size_t count = kvr_render_match_bars(sketch, view->scale, bars);

    kvr_buffer_append_text(out, "$bars << EOD\n");
    for (size_t i = 0; i < count; i++) {
        char text[32] = "";
        bool large = bars[i].until >= 1024;
        if (i % (count / BAR_LABELS + 1) == 0)
            snprintf(
                text, sizeof text, "%g%s", bars[i].until / (large ? 1024 : 1), large ? "k" : "");
        print(
            out, "%zu \"%s\" %.6g\n", i, text, 100 * (double)bars[i].count / (double)sketch->count);
    }
    print(out,
        "EOD\nset title 'Match length'\nset xlabel 'tokens reused, up to (k = 1024); first bar: "
        "none'\nset ylabel 'share of requests, %%'\nset xrange [-0.7:%zu.7]\nset yrange [0:*]\n"
        "set style fill solid 0.85\nset boxwidth 0.8\n",
        count ? count - 1 : 1);
    if (count)
        kvr_buffer_append_text(out, "plot $bars using 1:3:xtic(2) with boxes lc 1 notitle\n");
    else
        nothing(out, "0:100");
    kvr_buffer_append_text(out, "set xrange [*:*]\nset xtics autofreq\n");
}

static void over_time(struct kvr_buffer *out, const struct kvr_timeline *timeline)
{
    bool hits = false;

    kvr_buffer_append_text(out, "$time << EOD\n");
    for (size_t i = 0; i < timeline->step_count; i++) {
        hits |= isfinite(timeline->steps[i].hit_rate);
        number(out, timeline->steps[i].start + timeline->step_length / 2);
        number(out, timeline->steps[i].hit_rate * 100);
        number(out, timeline->steps[i].request_rate);
        kvr_buffer_append_byte(out, '\n');
    }
    print(out,
        "EOD\nset title 'Hit rate and load over time'\n"
        "set xlabel 'time since the first request, %s'\n"
        "set ylabel 'token hit rate, %%' tc lt 1\nset y2label 'requests/s' tc lt 2\n"
        "set yrange [0:100]\nset y2range [0:*]\nset y2tics\nset ytics nomirror\nunset key\n",
        timeline->unit ? timeline->unit : "s");
    const char *line = timeline->step_count == 1 ? "points pt 7" : "lines";
    if (!timeline->step_count)
        nothing(out, "0:100");
    else
        print(out, "set xrange [0:%.6g]\nplot ", timeline->length);
    if (hits)
        print(out, "$time using 1:2 with %s lw 3 lc 1, ", line);
    if (timeline->step_count)
        print(out, "$time using 1:3 axes x1y2 with %s lw 2 lc 2\n", line);
    kvr_buffer_append_text(
        out, "unset y2tics\nunset y2label\nset ylabel tc default\nset ytics mirror\n");
}

static void heat_map(
    struct kvr_buffer *out, const struct kvr_timeline *timeline, const struct kvr_render *render)
{
    uint32_t rows = timeline->worker_count, all = render->run->view.load_count;
    size_t shared = shared_end(render);
    char some[64] = "";
    bool any = false;

    kvr_buffer_append_text(out, "$heat << EOD\n");
    for (size_t i = 0; i < timeline->step_count; i++) {
        for (uint32_t row = 0; row < rows; row++) {
            double heat = timeline->heat[i * rows + row];
            if (isnan(heat))
                continue;
            print(out, "%.6g %u %.4g\n", timeline->steps[i].start + timeline->step_length / 2, row,
                heat * 100);
            any = true;
        }
    }
    if (rows < all)
        snprintf(some, sizeof some, " (%u of %u)", rows, all);
    print(out,
        "EOD\nset title 'Workers%s: %s'\nset xlabel 'time since the first request, %s'\n"
        "unset ylabel\nset cblabel '%%'\nset cbrange [0:100]\nset cbtics 50\nset xrange [0:%.6g]\n"
        "set yrange [%u.5:-0.5]\nset palette defined (0 '#f4f7fb', 50 '#6fa8ea', 100 '#08306b')\n",
        some, timeline->heat_text ? timeline->heat_text : "", timeline->unit ? timeline->unit : "s",
        timeline->length > 0 ? timeline->length : 1, rows ? rows - 1 : 0);
    kvr_buffer_append_text(out, "set ytics font ',15' (");
    for (uint32_t row = 0; row < rows; row++) {
        uint32_t every = rows / 16 + 1;
        if (row % every)
            continue;
        print(out, "%s\"", row ? "," : "");
        label(out, &render->report->worker_names.items[render->run->load_workers[row]], shared);
        print(out, "\" %u", row);
    }
    if (!rows)
        kvr_buffer_append_text(out, "\"\" 0");
    print(out, ")\nset boxwidth %.6g\n", timeline->step_length);
    if (any)
        print(out,
            "plot $heat using 1:2:(%.6g):(0.46):3 with boxxyerror fs solid noborder lc "
            "palette notitle\n",
            timeline->step_length / 2);
    else
        nothing(out, "0.5:-0.5");
}

enum kvr_status kvr_render_gnuplot(const struct kvr_render *render, const char *file,
    struct kvr_buffer *out, struct kvr_error *error)
{
    const char *dot = strrchr(file, '.');
    struct kvr_timeline timeline;
    bool png = dot && strcmp(dot, ".png") == 0;

    if (!png && (!dot || strcmp(dot, ".svg") != 0))
        return kvr_error_set(error, KVR_BAD_USAGE, "'%s' ends in neither .png nor .svg", file);
    enum kvr_status status = kvr_timeline_make(&timeline, render, STEPS, error);
    if (status != KVR_OK)
        return status;
    print(out, "set terminal %s size 1600,1120 font 'sans,%d'\nset output ",
        png ? "pngcairo" : "svg", png ? 19 : 24);
    quoted(out, file);
    kvr_buffer_append_text(out,
        "\nset linetype 1 lc rgb '#0b62d6'\nset linetype 2 lc rgb '#c2410c'\n"
        "set linetype 3 lc rgb '#6b7280'\nset grid lc rgb '#d8dee4'\nset tics nomirror\n"
        "set multiplot layout 2,2 margins 0.08,0.91,0.09,0.93 spacing 0.18,0.18\n");
    cdf(out, &render->run->view);
    histogram(out, &render->run->view);
    over_time(out, &timeline);
    heat_map(out, &timeline, render);
    kvr_buffer_append_text(out, "unset multiplot\n");
    kvr_timeline_release(&timeline);
    return out->failed ? kvr_error_memory(error) : KVR_OK;
}
