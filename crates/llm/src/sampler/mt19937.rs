//! The Mersenne twister MT19937 (Matsumoto & Nishimura 1998), which C++ calls `std::mt19937`.

const N: usize = 624;
const M: usize = 397;

/// The generator's state.
pub(super) struct Mt19937 {
    state: [u32; N],
    next: usize,
}

impl Mt19937 {
    /// Starts the sequence of `seed`.
    pub(super) fn new(seed: u32) -> Self {
        let mut state = [seed; N];
        for i in 1..N {
            let previous = state[i - 1];
            state[i] = (previous ^ (previous >> 30))
                .wrapping_mul(1_812_433_253)
                .wrapping_add(i as u32);
        }
        Self { state, next: N }
    }

    /// The next 32 random bits.
    fn next_u32(&mut self) -> u32 {
        if self.next == N {
            self.twist();
        }
        let mut y = self.state[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    fn twist(&mut self) {
        for i in 0..N {
            let y = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % N] & 0x7fff_ffff);
            let odd = if y & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[i] = self.state[(i + M) % N] ^ (y >> 1) ^ odd;
        }
        self.next = 0;
    }

    /// A number in [0, 1) from two outputs, low half first. It equals
    /// `std::uniform_real_distribution<double>` in libc++ and in libstdc++ up to version 15.
    pub(super) fn uniform(&mut self) -> f64 {
        let low = f64::from(self.next_u32());
        let high = f64::from(self.next_u32());
        let value = (low + high * 2f64.powi(32)) / 2f64.powi(64);
        // The sum rounds to 53 bits and could reach 1.
        value.min(1.0f64.next_down())
    }

    /// A number in [0, 1) of 32 bits from one output, as in
    /// `std::uniform_real_distribution<float>`.
    pub(super) fn uniform_f32(&mut self) -> f32 {
        let value = self.next_u32() as f32 / 2f32.powi(32);
        value.min(1.0f32.next_down())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The C++ standard names the 10 000th output of the default seed ([rand.predef]).
    #[test]
    fn the_ten_thousandth_output_is_that_of_the_standard() {
        let mut rng = Mt19937::new(5489);
        assert_eq!(
            (0..10_000).map(|_| rng.next_u32()).last(),
            Some(4_123_659_995)
        );
    }

    #[test]
    fn seeds_start_the_sequences_of_libstdcxx() {
        for (seed, expected) in [
            (
                0,
                [2_357_136_044, 2_546_248_239, 3_071_714_933, 3_626_093_760],
            ),
            (
                42,
                [1_608_637_542, 3_421_126_067, 4_083_286_876, 787_846_414],
            ),
            (
                4242,
                [1_395_647_406, 3_472_777_710, 4_039_049_869, 1_035_264_657],
            ),
        ] {
            let mut rng = Mt19937::new(seed);
            assert_eq!([(); 4].map(|()| rng.next_u32()), expected, "seed {seed}");
        }
    }

    /// The bits of the first five numbers and of the 1000th, from libstdc++ 12.
    #[test]
    fn uniform_numbers_are_those_of_libstdcxx() {
        let goldens = [
            (
                0,
                [
                    0x3fe2_f895_45f1_8fe1,
                    0x3feb_0439_9816_e2d5,
                    0x3feb_744a_5f73_49d6,
                    0x3feb_1caf_acf1_6faf,
                    0x3fe3_f43b_da6d_8e95,
                ],
                0x3fec_bc0e_16b5_ab24,
            ),
            (
                42,
                [
                    0x3fe9_7d47_b66b_fc3c,
                    0x3fc7_7aca_8779_b102,
                    0x3fe8_f33a_88f7_6c7f,
                    0x3fe3_1965_8293_2836,
                    0x3fdc_8886_1e49_fc36,
                ],
                0x3fe0_ae7e_be0e_45ae,
            ),
            (
                u32::MAX - 1,
                [
                    0x3fba_12c6_8885_4a6e,
                    0x3fee_552d_2a10_b6f0,
                    0x3fea_869f_5731_ae36,
                    0x3fd7_d43e_4ce6_e521,
                    0x3fe0_90fb_9a51_f194,
                ],
                0x3fd0_ce39_38f6_7d03,
            ),
        ];
        for (seed, first, thousandth) in goldens {
            let mut rng = Mt19937::new(seed);
            let mut bits = || rng.uniform().to_bits();
            assert_eq!([(); 5].map(|()| bits()), first, "seed {seed}");
            assert_eq!(
                (5..1000).map(|_| bits()).last(),
                Some(thousandth),
                "seed {seed}"
            );
        }
    }
}
