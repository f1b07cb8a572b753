"""Slow, obvious oracles in loops and NumPy, written from the paper and not from the code.

Symbols are the paper's: o outputs, d desired output, p true class, xi costs. Row = true class.
"""

import math

import numpy as np


def softmax_with_costs(o, p, xi):
    """Eq. (softmax): y_n = xi_pn exp(o_n) / sum_k xi_pk exp(o_k)."""
    top = max(o)
    parts = [xi[p][n] * math.exp(o[n] - top) for n in range(len(o))]
    return [part / sum(parts) for part in parts]


def one_hot(p, classes, smoothing=0.0):
    return [(1 - smoothing) * (n == p) + smoothing / classes for n in range(classes)]


def cross_entropy(o, p, xi, smoothing=0.0):
    """Eq. (softmaxloss): -sum_n d_n log y_n."""
    y, d = softmax_with_costs(o, p, xi), one_hot(p, len(o), smoothing)
    return -sum(d[n] * math.log(y[n]) for n in range(len(o)) if d[n] > 0)


def hinge(o, p, xi, smoothing=0.0):
    """Eq. (svm_loss) without its minus: sum_n max(0, 1 - (2 d_n - 1) o_n xi_pn)."""
    d = one_hot(p, len(o), smoothing)
    return sum(max(0.0, 1 - (2 * d[n] - 1) * o[n] * xi[p][n]) for n in range(len(o)))


def mse(o, p, xi, smoothing=0.0):
    """Eq. (MSE_loss): 1/2 sum_n (d_n - y_n)^2 with y_n the logistic of o_n xi_pn."""
    d = one_hot(p, len(o), smoothing)
    y = [1 / (1 + math.exp(-o[n] * xi[p][n])) for n in range(len(o))]
    return sum((d[n] - y[n]) ** 2 for n in range(len(o))) / 2


def batch(loss, logits, target, *args, **kwargs):
    """The loss of each sample; a target row of probabilities means the mix of the losses."""
    values = []
    for o, t in zip(logits, target, strict=True):
        if np.ndim(t) == 0:
            values.append(loss(list(o), int(t), *args, **kwargs))
        else:
            values.append(
                sum(t[p] * loss(list(o), p, *args, **kwargs) for p in range(len(o)) if t[p] > 0)
            )
    return np.array(values)


def weighted_mean(loss, logits, target, weight, *args, **kwargs):
    """The loss of each true class times its weight and share, divided by the sum of the weights."""
    total = weights = 0.0
    for o, t in zip(logits, target, strict=True):
        shares = one_hot(int(t), len(o)) if np.ndim(t) == 0 else t
        for p in range(len(o)):
            if shares[p] * weight[p] > 0:
                total += shares[p] * weight[p] * loss(list(o), p, *args, **kwargs)
                weights += shares[p] * weight[p]
    return total / weights


def cross_entropy_gradient(o, p, xi):
    """Prop. 1: y_m - d_m."""
    y = softmax_with_costs(o, p, xi)
    return [y[m] - (m == p) for m in range(len(o))]


def hinge_gradient(o, p, xi):
    """-(2 d_n - 1) xi_pn where 1 > y_n (2 d_n - 1)."""
    gradient = []
    for n in range(len(o)):
        sign = 1 if n == p else -1
        active = o[n] * xi[p][n] * sign < 1
        gradient.append(-sign * xi[p][n] if active else 0.0)
    return gradient


def mse_gradient(o, p, xi):
    """-xi_pn (d_n - y_n) y_n (1 - y_n)."""
    gradient = []
    for n in range(len(o)):
        y = 1 / (1 + math.exp(-o[n] * xi[p][n]))
        gradient.append(-xi[p][n] * ((n == p) - y) * y * (1 - y))
    return gradient


def class_frequencies(counts, relative_to):
    whole = sum(counts) if relative_to == "total" else max(counts)
    return [count / whole for count in counts]


def frequency_complement(h):
    """1 for outputs that are at least as frequent, else the ratio of the two."""
    return np.array(
        [[1.0 if h[q] >= h[p] else h[q] / h[p] for q in range(len(h))] for p in range(len(h))]
    )


def project_costs(xi, floor):
    return np.array([[min(1.0, max(floor, value)) for value in row] for row in xi])


def step_costs(xi, T, cost_lr, floor):
    """xi + lr (T - xi), back in [floor, 1]."""
    size = len(xi)
    return project_costs(
        [[xi[p][q] + cost_lr * (T[p][q] - xi[p][q]) for q in range(size)] for p in range(size)],
        floor,
    )


def costs_from_misclassification(costs, floor):
    """xi_pn = c / (2 worst - c), 1 on the diagonal."""
    worst = max(max(row) for row in costs)
    size = len(costs)
    xi = np.ones((size, size))
    for p in range(size):
        for n in range(size):
            if n != p:
                xi[p, n] = max(floor, costs[p][n] / (2 * worst - costs[p][n]))
    return xi


def frequency_matrix(h):
    size = len(h)
    return np.array(
        [[h[p] if p == q else max(h[p], h[q]) for q in range(size)] for p in range(size)]
    )


def target_costs(H, S, R, mu1, sigma1, mu2, sigma2, floor):
    size = len(H)
    T = np.empty((size, size))
    for p in range(size):
        for q in range(size):
            value = H[p][q]
            value *= math.exp(-((S[p][q] - mu1) ** 2) / (2 * sigma1**2))
            value *= math.exp(-((R[p][q] - mu2) ** 2) / (2 * sigma2**2))
            T[p, q] = min(1.0, max(floor, value))
    return T


def cost_objective(xi, T, val_error):
    return sum((T[p][q] - xi[p][q]) ** 2 for p in range(len(T)) for q in range(len(T))) + val_error


def bayes_decision(P, costs):
    """The output with the lowest expected cost, row of costs = true class."""
    decisions = []
    for posterior in P:
        size = len(posterior)
        risks = [sum(posterior[p] * costs[p][n] for p in range(size)) for n in range(size)]
        decisions.append(int(np.argmin(risks)))
    return decisions


def separability(features, target, classes, ceiling=100.0):
    """S(p, q): mean over i in p of (nearest other of p) / (nearest of q).

    A class with one sample gets the mean of the other rows, a class without samples also in its
    column.
    """
    members = [[i for i in range(len(target)) if target[i] == p] for p in range(classes)]
    known = {}
    for p in range(classes):
        for q in range(classes):
            if p == q or len(members[p]) < 2 or len(members[q]) < 1:
                continue
            ratios = []
            for i in members[p]:
                intra = min(np.linalg.norm(features[i] - features[j]) for j in members[p] if j != i)
                inter = min(np.linalg.norm(features[i] - features[j]) for j in members[q])
                if inter == 0:
                    ratios.append(1.0 if intra == 0 else ceiling)
                else:
                    ratios.append(min(intra / inter, ceiling))
            known[p, q] = np.mean(ratios)

    S = np.ones((classes, classes))
    for p in range(classes):
        for q in range(classes):
            if p == q or not known:
                continue
            row = [value for (i, _), value in known.items() if i == p]
            column = [value for (_, j), value in known.items() if j == q]
            average = row if len(members[p]) >= 2 else column
            S[p, q] = known.get((p, q), np.mean(average or list(known.values())))
    return S


def margin_softmax_loss(o, p, margins):
    """-log softmax of o + margins[p]."""
    shifted = [o[n] + margins[p][n] for n in range(len(o))]
    top = max(shifted)
    return top + math.log(sum(math.exp(s - top) for s in shifted)) - shifted[p]


def ldam(o, p, counts, max_margin, scale):
    shifted = list(o)
    shifted[p] -= max_margin * (min(counts) / counts[p]) ** 0.25
    return margin_softmax_loss([scale * s for s in shifted], p, np.zeros((len(o), len(o))))


def focal(o, p, gamma):
    y = softmax_with_costs(o, p, np.ones((len(o), len(o))))[p]
    return -((1 - y) ** gamma) * math.log(y)


def effective_number_weights(counts, beta):
    weights = np.array([(1 - beta) / (1 - beta**n) for n in counts])
    return weights / weights.mean()


def sosr(o, p, costs):
    """Chung et al.: sum_k log(1 + exp(z_k (r_k - c_k))), r = -o, z_k = +1 for the true class."""
    total = 0.0
    for k in range(len(o)):
        z = 1 if k == p else -1
        total += math.log1p(math.exp(z * (-o[k] - costs[p][k])))
    return total


def one_vs_all(confusion):
    """(TP, FP, FN, TN) of each class."""
    n = len(confusion)
    total = sum(confusion[i][j] for i in range(n) for j in range(n))
    cells = []
    for c in range(n):
        tp = confusion[c][c]
        fp = sum(confusion[i][c] for i in range(n) if i != c)
        fn = sum(confusion[c][j] for j in range(n) if j != c)
        cells.append((tp, fp, fn, total - tp - fp - fn))
    return cells


def confusion_rates(confusion):
    return np.array([[n / sum(row) if sum(row) else 0.0 for n in row] for row in confusion])


def g_mean(confusion):
    """The geometric mean of the recalls of the classes that have samples."""
    recalls = [tp / (tp + fn) for tp, _, fn, _ in one_vs_all(confusion) if tp + fn]
    return math.prod(recalls) ** (1 / len(recalls))


def macro_f1(confusion):
    """The mean of F1 = 2 TP / (2 TP + FP + FN) of the classes with a sample or an output."""
    return np.mean(
        [2 * tp / (2 * tp + fp + fn) for tp, fp, fn, _ in one_vs_all(confusion) if tp + fp + fn]
    )


def paper_g_mean(confusion):
    total = np.sum(confusion)
    score = 0.0
    for tp, fp, fn, tn in one_vs_all(confusion):
        if tp + fn:
            tnr = tn / (tn + fp) if tn + fp else 0.0
            score += (tp + fn) / total * math.sqrt(tp / (tp + fn) * tnr)
    return score


def paper_f_measure(confusion):
    total = np.sum(confusion)
    score = 0.0
    for tp, fp, fn, _ in one_vs_all(confusion):
        if tp:
            precision, recall = tp / (tp + fp), tp / (tp + fn)
            score += (tp + fn) / total * precision * recall / (precision + recall)
    return score


def calibration_error(probabilities, target, bins):
    total = 0.0
    for b in range(bins):
        inside = [
            i
            for i, row in enumerate(probabilities)
            if (b / bins < max(row) <= (b + 1) / bins) or (b == 0 and max(row) == 0)
        ]
        if inside:
            confidence = np.mean([max(probabilities[i]) for i in inside])
            accuracy = np.mean([np.argmax(probabilities[i]) == target[i] for i in inside])
            total += len(inside) / len(target) * abs(confidence - accuracy)
    return total


def adaptive_costs(counts, tau, margin):
    """xi of AdaptiveCosts for the balanced objective, entry by entry, rows relative to their
    largest."""
    size, total = len(counts), sum(counts)
    rows = []
    for p in range(size):
        row = []
        for n in range(size):
            entry = tau * math.log(counts[n] / total)
            if n == p:
                entry -= margin * (min(counts) / counts[p]) ** 0.25
            row.append(entry)
        rows.append([math.exp(entry - max(row)) for entry in row])
    return rows


def frequency_bias(logits, target, counts, change):
    """Bias to frequent classes after a change of tau; classes have equal weight in validation."""
    logs = [math.log(count / sum(counts)) for count in counts]
    sums, seen = {}, {}
    for scores, true in zip(logits, target, strict=True):
        moved = [score - change * log for score, log in zip(scores, logs, strict=True)]
        predicted = moved.index(max(moved))
        sums[true] = sums.get(true, 0) + logs[predicted] - logs[true]
        seen[true] = seen.get(true, 0) + 1
    return sum(sums[true] / seen[true] for true in sums) / len(sums)


def within_class_covariance(features, target):
    """Pooled covariance of the classes with two samples or more, one sample at a time."""
    width = len(features[0])
    total, used = [[0.0] * width for _ in range(width)], 0
    for label in set(target):
        own = [row for row, found in zip(features, target, strict=True) if found == label]
        if len(own) < 2:
            continue
        mean = [sum(column) / len(own) for column in zip(*own, strict=True)]
        for row in own:
            used += 1
            for i in range(width):
                for j in range(width):
                    term = (row[i] - mean[i]) * (row[j] - mean[j])
                    total[i][j] += term * len(own) / (len(own) - 1)
    return [[entry / used for entry in row] for row in total]


def spread_margin(weight, covariance, true, output):
    """Half the variance of the difference between two outputs."""
    width = len(covariance)
    apart = [weight[output][i] - weight[true][i] for i in range(width)]
    return (
        sum(apart[i] * covariance[i][j] * apart[j] for i in range(width) for j in range(width)) / 2
    )
