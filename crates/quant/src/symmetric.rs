//! The K formats without minima: `Q3_K`, `Q6_K`.

use crate::numerics::{multiples, nearest_int};
use half::f16;

/// A block unpacked: value = d × scale × (code − `HALF`).
pub(crate) struct Symmetric<const HALF: i8> {
    pub(crate) d: f16,
    pub(crate) scales: [i8; 16],
    pub(crate) codes: [[u8; 16]; 16],
}

impl<const HALF: i8> Symmetric<HALF> {
    /// Codes the values anew with what the rounding of the scales has left, except where that is 0.
    pub(crate) fn recode(&mut self, x: &[[f32; 16]; 16]) {
        let half = i32::from(HALF);
        let scales = multiples(self.d, &self.scales);
        for (g, x) in x.iter().enumerate() {
            let scale = scales[g];
            if scale != 0.0 {
                let code = |x| (nearest_int(x / scale).clamp(-half, half - 1) + half) as u8;
                self.codes[g] = x.map(code);
            }
        }
    }
}
