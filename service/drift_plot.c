/* The picture of driftline drift --plot: the rolling statistic over the feed
 * with its threshold and alerts, and how far each feature moved. Plain SVG,
 * readable without colour: spans are labelled, alerts are marked with shapes. */
#include <inttypes.h>
#include <math.h>

#include "service/drift_offline.h"

#define WIDTH 960
#define LEFT 70
#define RIGHT 20
#define CURVE_TOP 70
#define CURVE_HEIGHT 240
#define BARS_TOP 400
#define BAR_HEIGHT 18

struct axes {
    double events, top; /* ranges */
};

static double x_of(const struct axes *axes, uint64_t event)
{
    return LEFT + (double)event / axes->events * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct axes *axes, double value)
{
    double share = value / axes->top;
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    return CURVE_TOP + CURVE_HEIGHT * (1 - share);
}

static void escaped(struct dl_buf *svg, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            dl_buf_text(svg, "&lt;");
        else if (*text == '>')
            dl_buf_text(svg, "&gt;");
        else if (*text == '&')
            dl_buf_text(svg, "&amp;");
        else if (*text == '"')
            dl_buf_text(svg, "&quot;");
        else if ((unsigned char)*text >= 0x20)
            dl_buf_u8(svg, (uint8_t)*text);
    }
}

static void span(struct dl_buf *svg, const struct axes *axes, struct dl_drift_span range,
                 const char *label)
{
    double x = x_of(axes, range.begin), width = x_of(axes, range.end) - x;
    dl_buf_printf(svg,
                  "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"#eef2f7\"/>"
                  "<text x=\"%.1f\" y=\"%d\" class=\"s\">%s</text>\n",
                  x, CURVE_TOP, width, CURVE_HEIGHT, x + 4, CURVE_TOP + 14, label);
}

/* 1, 2 or 5 times a power of ten, for about four steps up to `top`. */
static double step_for(double top)
{
    double step = pow(10, floor(log10(top / 4)));
    if (top / step > 20) return step * 5;
    return top / step > 8 ? step * 2 : step;
}

static void curve(const struct dl_dataset *dataset, const struct dl_drift_offline *r,
                  struct dl_buf *svg)
{
    struct axes axes = {(double)dataset->event_count, r->threshold * 1.5};
    for (uint32_t k = 0; k < r->point_count; k++)
        if (r->points[k].statistic * 1.1 > axes.top) axes.top = r->points[k].statistic * 1.1;
    if (!(axes.top > 0)) axes.top = 1;
    span(svg, &axes, r->before, "before");
    span(svg, &axes, r->after, "after");
    const double step = step_for(axes.top);
    for (double value = 0; value <= axes.top; value += step)
        dl_buf_printf(svg,
                      "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" class=\"g\"/>"
                      "<text x=\"%d\" y=\"%.1f\" class=\"s e\">%.3g</text>\n",
                      LEFT, WIDTH - RIGHT, y_of(&axes, value), y_of(&axes, value), LEFT - 6,
                      y_of(&axes, value) + 4, value);
    for (int k = 0; k <= 4; k++) {
        uint64_t event = (dataset->event_count - 1) * (uint64_t)k / 4;
        char when[40];
        dl_time_format(dataset->events[event].time, dataset->time_unit, when);
        when[16] = 0; /* to the minute */
        dl_buf_printf(svg, "<text x=\"%.1f\" y=\"%d\" class=\"s %s\">%s</text>\n",
                      x_of(&axes, event), CURVE_TOP + CURVE_HEIGHT + 16,
                      k == 0   ? ""
                      : k == 4 ? "e"
                               : "m",
                      when);
    }
    dl_buf_printf(svg,
                  "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#b23\" "
                  "stroke-dasharray=\"6 4\"/><text x=\"%d\" y=\"%.1f\" class=\"s\" "
                  "style=\"fill:#b23\">threshold %.3g</text>\n",
                  LEFT, WIDTH - RIGHT, y_of(&axes, r->threshold), y_of(&axes, r->threshold),
                  LEFT + 4, y_of(&axes, r->threshold) - 5, r->threshold);
    dl_buf_text(svg, "<polyline fill=\"none\" stroke=\"#1a4f8a\" stroke-width=\"1.4\" points=\"");
    for (uint32_t k = 0; k < r->point_count; k++)
        dl_buf_printf(svg, "%.1f,%.1f ", x_of(&axes, r->points[k].event),
                      y_of(&axes, r->points[k].statistic));
    dl_buf_text(svg, "\"/>\n");
    for (uint32_t k = 0; k < r->alert_count; k++) {
        double x = x_of(&axes, r->alerts[k].event), y = CURVE_TOP + CURVE_HEIGHT;
        dl_buf_printf(svg,
                      r->alerts[k].raised
                          ? "<path d=\"M%.1f %.1fl-6 -11h12z\" fill=\"#b23\"><title>raised at "
                            "event %" PRIu64 ": %s</title></path>\n"
                          : "<path d=\"M%.1f %.1fl-5 -10h10z\" fill=\"none\" stroke=\"#555\">"
                            "<title>cleared at event %" PRIu64 "%s</title></path>\n",
                      x, y, r->alerts[k].event, r->alerts[k].raised ? r->alerts[k].feature : "");
    }
}

static void bars(const struct dl_drift_offline *r, struct dl_buf *svg)
{
    const double longest = r->features[0].distance > 0 ? r->features[0].distance : 1;
    dl_buf_printf(svg,
                  "<text x=\"20\" y=\"%d\" class=\"h\">How far each feature moved (squared energy "
                  "distance, in deviations; means before and after)</text>\n",
                  BARS_TOP - 16);
    for (int c = 0; c < DL_DRIFT_COLUMNS; c++) {
        const struct dl_drift_offline_feature *f = &r->features[c];
        const int y = BARS_TOP + c * BAR_HEIGHT;
        const double width = f->distance / longest * 420;
        dl_buf_printf(svg,
                      "<text x=\"150\" y=\"%d\" class=\"s e\">%s</text><rect x=\"158\" y=\"%d\" "
                      "width=\"%.1f\" height=\"%d\" fill=\"#1a4f8a\"/><text x=\"%.1f\" y=\"%d\" "
                      "class=\"s\">%.3g   (%.3g to %.3g)</text>\n",
                      y + 12, f->name, y + 2, width, BAR_HEIGHT - 5, 164 + width, y + 12,
                      f->distance, f->before_mean, f->after_mean);
    }
}

void dl_drift_offline_plot(const struct dl_dataset *dataset, const struct dl_drift_offline *r,
                           struct dl_buf *svg)
{
    const int height = BARS_TOP + DL_DRIFT_COLUMNS * BAR_HEIGHT + 20;
    dl_buf_printf(svg,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
                  "height=\"%d\" role=\"img\">\n<style>text{font-family:sans-serif;fill:#222}"
                  ".h{font-size:14px;font-weight:bold}.s{font-size:11px}.e{text-anchor:end}"
                  ".m{text-anchor:middle}.g{stroke:#ddd}</style>\n"
                  "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<text x=\"20\" y=\"26\" "
                  "class=\"h\">Drift of ",
                  WIDTH, height, WIDTH, height);
    escaped(svg, dataset->path);
    dl_buf_printf(
        svg,
        "</text>\n<text x=\"20\" y=\"46\" class=\"s\">before against after: MMD&#178; %.4g, "
        "p %.3g (%u block permutations)%s",
        r->test.mmd2, r->test.p_value, r->permutations,
        r->has_monitor ? ". Curve: the rolling statistic against the span before" : "");
    if (r->has_monitor)
        dl_buf_printf(svg, ", window %u events; full triangle: raised, hollow: cleared", r->window);
    dl_buf_text(svg, "</text>\n");
    if (r->has_monitor) {
        curve(dataset, r, svg);
    } else {
        dl_buf_text(svg, "<text x=\"20\" y=\"100\" class=\"s\">No curve: ");
        escaped(svg, r->monitor_problem);
        dl_buf_text(svg, "</text>\n");
    }
    bars(r, svg);
    dl_buf_text(svg, "</svg>\n");
}
