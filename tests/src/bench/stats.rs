//! Statistics of samples.

use super::{Outcome, clock};

/// One figure of a row, measured in several rounds. Each round measures the library and, if there is one, the raw
/// limit.
#[derive(Debug, Clone, Default)]
pub struct Rounds {
    /// The values of the library.
    pub ours: Vec<f64>,
    /// The values of the raw limit. Empty if the figure has no raw limit.
    pub raw: Vec<f64>,
}

impl Rounds {
    /// The ratio of ours to raw, for each round. A disturbance in a round affects both values.
    pub fn ratios(&self) -> Vec<f64> {
        self.ours.iter().zip(&self.raw).map(|(ours, raw)| ours / raw).collect()
    }

    /// Adds the values of one round.
    pub fn push(&mut self, ours: f64, raw: f64) {
        self.ours.push(ours);
        self.raw.push(raw);
    }
}

/// The median. It is NaN if there is no value.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// The minimum and the maximum.
pub fn spread(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::NAN, f64::NAN), |(low, high), value| (value.min(low), value.max(high)))
}

/// The median of samples in nanoseconds, converted to microseconds.
pub fn p50_us(samples: &[u64]) -> f64 {
    percentile(samples, 50) / 1e3
}

/// The least sample that is at least as large as this part of the samples. It is NaN if there is no sample.
pub fn percentile(samples: &[u64], percent: usize) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(rank).map_or(f64::NAN, |sample| float(*sample))
}

/// Jain's fairness index. It is 1 if all shares are equal, and 1/n if one share has everything.
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (float(shares.len() as u64) * squares)
}

/// Converts a count or a time to a floating-point number. The result is exact below 2^53.
#[allow(clippy::cast_precision_loss, reason = "counts and nanoseconds of a run stay below 2^53")]
pub fn float(number: u64) -> f64 {
    number as f64
}

/// Measures the time of each of `count` operations, in nanoseconds.
pub fn timed(count: usize, samples: &mut Vec<u64>, mut work: impl FnMut() -> Outcome<()>) -> Outcome<()> {
    for _ in 0..count {
        let start = clock::now();
        work()?;
        samples.push(clock::now() - start);
    }
    Ok(())
}

/// A function that adds samples in nanoseconds.
pub type Sampler<'a> = &'a mut dyn FnMut(&mut Vec<u64>) -> Outcome<()>;

/// The p50 in microseconds of samples taken in turns: raw, ours, raw, ours. Each round takes `blocks` of each. One
/// block of each comes first and does not count.
pub fn p50_in_turns(rounds: usize, blocks: usize, raw: Sampler<'_>, ours: Sampler<'_>) -> Outcome<Rounds> {
    raw(&mut Vec::new())?;
    ours(&mut Vec::new())?;
    let mut result = Rounds::default();
    for _ in 0..rounds {
        let (mut of_raw, mut of_ours) = (Vec::new(), Vec::new());
        for _ in 0..blocks {
            raw(&mut of_raw)?;
            ours(&mut of_ours)?;
        }
        result.push(p50_us(&of_ours), p50_us(&of_raw));
    }
    Ok(result)
}

/// A function that measures a figure.
pub type Measure<'a> = &'a mut dyn FnMut() -> Outcome<f64>;

/// A figure measured in turns: raw, ours, raw, ours. Each round counts the median of `blocks` values of each. One value
/// of each comes first and does not count.
pub fn blocks_in_turns(rounds: usize, blocks: usize, raw: Measure<'_>, ours: Measure<'_>) -> Outcome<Rounds> {
    raw()?;
    ours()?;
    let mut result = Rounds::default();
    for _ in 0..rounds {
        let (mut of_raw, mut of_ours) = (Vec::new(), Vec::new());
        for _ in 0..blocks {
            of_raw.push(raw()?);
            of_ours.push(ours()?);
        }
        result.push(median(&of_ours), median(&of_raw));
    }
    Ok(result)
}
