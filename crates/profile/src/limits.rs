//! Measured limits of devices.

use rustorch_runtime::{Bound, Costs, DeviceType, OpCost, Runtime};

use crate::Map;

/// The measured limits of a device under its largest work, by
/// [calibration](rustorch_runtime::Runtime::measure).
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Limit {
    /// Bytes read and written per second; 0 if it was not measured.
    pub bytes_per_second: f64,
    /// Multiplications and additions in products per second; 0 if it was not measured.
    pub flops_per_second: f64,
}

impl Limit {
    fn of(costs: &Costs) -> Self {
        // The largest point counts, since small operands may stay in a cache.
        let rate = |cost: &OpCost| {
            let (work, seconds) = cost.curve.points().last().copied()?;
            (seconds > 0.0).then_some(work / seconds)
        };
        let best = |bound: Bound| {
            let all = costs.operations.iter().filter(|cost| cost.bound == bound);
            all.filter_map(rate).fold(0.0, f64::max)
        };
        Self {
            bytes_per_second: best(Bound::Bytes),
            flops_per_second: 2.0 * best(Bound::Macs),
        }
    }

    /// The share of the limit that work of this duration reaches: of bytes or of operations,
    /// whichever is larger.
    pub fn share(&self, bytes: f64, flops: f64, seconds: f64) -> Option<f64> {
        let least = self.least_seconds(bytes, flops).filter(|_| seconds > 0.0);
        least.map(|least| least / seconds)
    }

    /// Least time of work.
    pub(crate) fn least_seconds(&self, bytes: f64, flops: f64) -> Option<f64> {
        let pairs = [
            (bytes, self.bytes_per_second),
            (flops, self.flops_per_second),
        ];
        let measured = pairs.iter().filter(|(_, limit)| *limit > 0.0);
        measured.map(|(work, limit)| work / limit).reduce(f64::max)
    }
}

/// The limits of the devices that were measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits(Map<DeviceType, Limit>);

impl Limits {
    pub(crate) fn of(runtime: &Runtime) -> Self {
        let devices = runtime.devices().map(|info| info.device);
        let known = devices.filter_map(|d| Some((d, Limit::of(&*runtime.costs(d)?))));
        Self(known.collect())
    }

    pub(crate) fn of_device(&self, device: DeviceType) -> Option<&Limit> {
        self.0.get(&device)
    }
}

#[cfg(test)]
mod tests {
    use rustorch_runtime::Curve;

    use super::*;

    #[test]
    fn the_largest_work_is_the_limit() {
        let cost = |bound, points: &[(f64, f64)]| OpCost {
            op: rustorch_ir::OpKind::Matmul,
            example: String::new(),
            dtype: rustorch_ir::DType::F32,
            bound,
            curve: Curve::try_from(points.to_vec()).unwrap(),
        };
        let costs = Costs {
            operations: vec![
                cost(Bound::Bytes, &[(1e3, 1e-9), (1e9, 0.1)]),
                cost(Bound::Bytes, &[(1e9, 0.2)]),
                cost(Bound::Macs, &[(1e9, 0.01)]),
            ],
            ..Costs::default()
        };
        let limit = Limit::of(&costs);
        assert_eq!(limit.bytes_per_second, 1e10);
        assert_eq!(limit.flops_per_second, 2e11);
        assert_eq!(limit.share(1e9, 1e9, 1.0), Some(0.1));
        assert_eq!(limit.share(0.0, 1e11, 1.0), Some(0.5));
        assert_eq!(limit.share(1.0, 1.0, 0.0), None);
        assert_eq!(Limit::default().share(1.0, 1.0, 1.0), None);
    }
}
