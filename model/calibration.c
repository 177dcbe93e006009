/* Platt scaling.
 *
 * Loss  L(a, b) = Σ log(1 + e^f) − t f,  f = a z + b, with targets t drawn in
 * from 0 and 1 (Platt's prior), which keeps separable data finite.
 *   ∂L/∂a = Σ (p − t) z    ∂L/∂b = Σ (p − t)
 *   H = Σ p(1 − p) [z², z; z, 1]
 * The loss is convex: Newton steps, halved until the loss falls. */
#include "model/calibration.h"

#include <math.h>

#define ITERATIONS_MAX 100
#define SCALE_MIN 1e-3

struct side {
    const double *logits;
    uint64_t count;
    double target;
};

static double sigmoid(double x)
{
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

static double loss_at(const struct side *sides, double a, double b)
{
    double loss = 0;
    for (int s = 0; s < 2; s++) {
        for (uint64_t i = 0; i < sides[s].count; i++) {
            double f = a * sides[s].logits[i] + b;
            loss += (f > 0 ? f + log1p(exp(-f)) : log1p(exp(f))) - sides[s].target * f;
        }
    }
    return loss;
}

/* Root mean square of the logits. */
static double spread(const struct side *sides)
{
    double squares = 0;
    for (int s = 0; s < 2; s++)
        for (uint64_t i = 0; i < sides[s].count; i++)
            squares += sides[s].logits[i] * sides[s].logits[i];
    return sqrt(squares / (double)(sides[0].count + sides[1].count));
}

int dl_calibration_fit(const double *positives, uint64_t positive_count, const double *negatives,
                       uint64_t negative_count, struct dl_calibration *calibration)
{
    if (positive_count == 0 || negative_count == 0) return DL_ERR_INVALID;
    const struct side sides[2] = {
        {positives, positive_count, ((double)positive_count + 1) / ((double)positive_count + 2)},
        {negatives, negative_count, 1 / ((double)negative_count + 2)}};
    /* Start where the sigmoid is not saturated, or the curvature vanishes. */
    double a = 1 / (1 + spread(sides)), b = 0, loss = loss_at(sides, a, b);

    for (int iteration = 0; iteration < ITERATIONS_MAX; iteration++) {
        double ga = 0, gb = 0, haa = 1e-12, hab = 0, hbb = 1e-12;
        for (int s = 0; s < 2; s++) {
            for (uint64_t i = 0; i < sides[s].count; i++) {
                double z = sides[s].logits[i], p = sigmoid(a * z + b);
                ga += (p - sides[s].target) * z;
                gb += p - sides[s].target;
                haa += p * (1 - p) * z * z;
                hab += p * (1 - p) * z;
                hbb += p * (1 - p);
            }
        }
        if (fabs(ga) * a < 1e-7 && fabs(gb) < 1e-7) break;
        double determinant = haa * hbb - hab * hab;
        if (!(determinant > 0)) break;
        double da = -(hbb * ga - hab * gb) / determinant;
        double db = -(haa * gb - hab * ga) / determinant;
        double step = 1, next = loss;
        for (; step > 1e-10; step /= 2) {
            next = loss_at(sides, a + step * da, b + step * db);
            if (next < loss + 1e-4 * step * (ga * da + gb * db)) break;
        }
        if (step <= 1e-10) break;
        a += step * da;
        b += step * db;
        loss = next;
    }
    if (a < SCALE_MIN) { /* scores say nothing, or the opposite: even odds for all */
        a = SCALE_MIN;
        b = log((double)positive_count / (double)negative_count);
    }
    *calibration = (struct dl_calibration){a, b};
    return DL_OK;
}

double dl_calibration_probability(const struct dl_calibration *calibration, double logit)
{
    return sigmoid(calibration->scale * logit + calibration->shift);
}
