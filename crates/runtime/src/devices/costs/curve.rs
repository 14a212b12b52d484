//! Time as a function of the amount of work.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Seconds by amount of work, at the measured amounts.
///
/// The curve is a straight line between two points, and passes through the origin below the first. Beyond the
/// last point, the rate is constant.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<(f64, f64)>", into = "Vec<(f64, f64)>")]
pub struct Curve(Vec<(f64, f64)>);

/// The points form no curve.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a curve's points need increasing amounts above 0, and finite times that are not negative")]
pub struct NoCurve;

impl TryFrom<Vec<(f64, f64)>> for Curve {
    type Error = NoCurve;

    fn try_from(points: Vec<(f64, f64)>) -> Result<Self, NoCurve> {
        let sound = |&(work, seconds): &(f64, f64)| {
            let time = Duration::try_from_secs_f64(seconds);
            work > 0.0 && work.is_finite() && time.is_ok()
        };
        let increasing = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
        match increasing && points.iter().all(sound) {
            true => Ok(Self(points)),
            false => Err(NoCurve),
        }
    }
}

impl From<Curve> for Vec<(f64, f64)> {
    fn from(curve: Curve) -> Self {
        curve.0
    }
}

impl Curve {
    /// The points: amounts of work, and seconds.
    pub fn points(&self) -> &[(f64, f64)] {
        &self.0
    }

    /// The seconds that this much work takes; `None` if nothing was measured.
    pub fn seconds(&self, work: f64) -> f64 {
        let after = self.0.partition_point(|&(at, _)| at < work);
        let before = match after {
            0 => (0.0, 0.0),
            n => self.0[n - 1],
        };
        match self.0.get(after) {
            Some(&(at, seconds)) => {
                let share = (work - before.0) / (at - before.0);
                before.1 + share * (seconds - before.1)
            }
            None if before.0 > 0.0 => before.1 * (work / before.0),
            None => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_through_the_points_and_the_last_rate_beyond() {
        let curve = Curve::try_from(vec![(10.0, 1.0), (20.0, 4.0)]).unwrap();
        let seconds = [0.0, 5.0, 10.0, 15.0, 20.0, 40.0].map(|work| curve.seconds(work));
        assert_eq!(seconds, [0.0, 0.5, 1.0, 2.5, 4.0, 8.0]);
        assert_eq!(Curve::default().seconds(7.0), 0.0);
    }

    #[test]
    fn what_is_no_curve_is_refused() {
        for points in [
            vec![(0.0, 1.0)],
            vec![(2.0, 1.0), (1.0, 2.0)],
            vec![(1.0, -1.0)],
            vec![(1.0, f64::NAN)],
            vec![(f64::INFINITY, 1.0)],
            vec![(1.0, 1e300)],
        ] {
            assert_eq!(Curve::try_from(points.clone()), Err(NoCurve), "{points:?}");
        }
    }
}
