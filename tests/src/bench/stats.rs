//! Statistics of samples.

use super::Outcome;

/// One figure of a row, measured in several rounds: of the library and, if there is one, of the raw limit in the same
/// round.
#[derive(Debug, Clone, Default)]
pub struct Rounds {
    /// Of the library.
    pub ours: Vec<f64>,
    /// Of the raw limit; empty where there is none.
    pub raw: Vec<f64>,
}

impl Rounds {
    /// A figure that has no raw limit.
    pub fn alone(ours: Vec<f64>) -> Self {
        Self { ours, raw: Vec::new() }
    }

    /// Ours divided by raw, for each round: a disturbance in a round affects both of its halves.
    pub fn ratios(&self) -> Vec<f64> {
        self.ours.iter().zip(&self.raw).map(|(ours, raw)| ours / raw).collect()
    }

    /// Ours minus raw, for each round.
    #[must_use]
    pub fn differences(&self) -> Self {
        Self::alone(self.ours.iter().zip(&self.raw).map(|(ours, raw)| ours - raw).collect())
    }

    /// Adds one round.
    pub fn push(&mut self, ours: f64, raw: f64) {
        self.ours.push(ours);
        self.raw.push(raw);
    }
}

/// The median. NaN if there is no value.
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

/// The median of nanoseconds, in microseconds.
pub fn p50_us(samples: &[u64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).map_or(f64::NAN, |nanos| float(*nanos) / 1e3)
}

/// The 99th percentile: one in a hundred is larger.
pub fn p99(samples: impl Iterator<Item = u64>) -> f64 {
    let mut sorted: Vec<u64> = samples.collect();
    sorted.sort_unstable();
    let rank = (sorted.len() * 99).div_ceil(100).saturating_sub(1);
    sorted.get(rank).map_or(f64::NAN, |sample| float(*sample))
}

/// Jain's fairness index: 1 if all have the same, 1/n if one has all.
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (float(shares.len() as u64) * squares)
}

/// A count or a time as a floating-point number; exact below 2^53.
#[allow(clippy::cast_precision_loss, reason = "counts and nanoseconds of a run stay below 2^53")]
pub fn float(number: u64) -> f64 {
    number as f64
}

/// Takes samples of nanoseconds.
pub type Sampler<'a> = &'a mut dyn FnMut(&mut Vec<u64>) -> Outcome<()>;

/// The p50, in microseconds, of samples taken in turns: raw, ours, raw, ours, `blocks` times in each round. One block
/// of each goes before and does not count.
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

/// Measures a figure.
pub type Measure<'a> = &'a mut dyn FnMut() -> Outcome<f64>;

/// A figure taken in turns: raw, ours, raw, ours, and the median of `blocks` of each in each round. One of each goes
/// before and does not count.
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
