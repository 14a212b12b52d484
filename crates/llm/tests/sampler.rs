//! The sampler chain as a whole, against llama.cpp's.

use rustorch_llm::sampler::{SamplerChain, SamplerConfig};

/// Logits of `steps` decode steps over `vocab` tokens: a linear congruential sequence, exact in
/// f32, with eight tokens that are always strong so that the penalties have repeats to act on.
fn steps(vocab: usize, steps: usize) -> Vec<Vec<f32>> {
    let mut state = 7u32;
    let step = |_| {
        let mut logits: Vec<f32> = (0..vocab)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as f32 / 1_048_576.0 - 8.0
            })
            .collect();
        for i in 0..8 {
            logits[i * 100] = 7.0 + i as f32 / 8.0;
        }
        logits
    };
    (0..steps).map(step).collect()
}

fn tokens(config: &SamplerConfig) -> Vec<u32> {
    let mut chain = SamplerChain::new(config).unwrap();
    let choose = |logits: Vec<f32>| {
        let token = chain.sample(&logits);
        chain.accept(token);
        token
    };
    steps(2000, 24).into_iter().map(choose).collect()
}

/// What llama.cpp 0.5.0's own samplers (libstdc++ 12) choose for these logits with seed 42.
#[test]
fn chains_choose_the_tokens_of_llama_cpp() {
    let base = SamplerConfig {
        seed: Some(42),
        ..SamplerConfig::default()
    };
    let cases: [(SamplerConfig, [u32; 24]); 8] = [
        (
            base.clone(),
            [
                123, 521, 804, 913, 541, 715, 28, 700, 398, 77, 387, 1737, 1912, 1854, 893, 600,
                1112, 41, 1592, 1460, 1234, 1891, 142, 246,
            ],
        ),
        (
            SamplerConfig {
                penalty_last_n: 16,
                repeat_penalty: 1.3,
                frequency_penalty: 0.2,
                presence_penalty: 0.1,
                ..base.clone()
            },
            [
                123, 521, 804, 913, 541, 715, 28, 700, 398, 471, 387, 1737, 792, 1854, 600, 1950,
                362, 41, 1592, 226, 1234, 614, 401, 246,
            ],
        ),
        (
            SamplerConfig {
                top_k: 0,
                ..base.clone()
            },
            [
                1258, 700, 1867, 47, 400, 700, 1626, 1778, 1854, 574, 1546, 649, 1209, 1854, 1347,
                1165, 458, 41, 194, 1877, 1784, 1123, 1159, 1601,
            ],
        ),
        (
            SamplerConfig {
                top_k: 0,
                top_p: 1.0,
                min_p: 0.1,
                temperature: 1.5,
                ..base.clone()
            },
            [
                1565, 384, 1486, 1216, 818, 159, 882, 678, 254, 1247, 117, 1481, 1904, 0, 1992,
                1195, 1163, 4, 22, 960, 798, 105, 1951, 400,
            ],
        ),
        (
            SamplerConfig {
                top_k: 100,
                typical_p: 0.7,
                min_p: 0.02,
                temperature: 1.2,
                ..base.clone()
            },
            [
                359, 164, 716, 1193, 1086, 1410, 1888, 600, 1739, 1379, 120, 661, 1228, 1910, 626,
                1011, 881, 1077, 473, 1475, 108, 1781, 426, 622,
            ],
        ),
        (
            SamplerConfig {
                top_k: 0,
                top_p: 1.0,
                min_p: 0.0,
                temperature: 2.0,
                ..base.clone()
            },
            [
                1582, 384, 1506, 1193, 867, 168, 921, 675, 254, 1264, 119, 1476, 1903, 0, 1988,
                1198, 1183, 6, 32, 958, 790, 105, 1951, 430,
            ],
        ),
        (
            SamplerConfig {
                top_k: 200,
                top_p: 0.99,
                min_p: 0.0,
                temperature: 3.0,
                ..base.clone()
            },
            [
                382, 969, 100, 1796, 412, 495, 1943, 1835, 1205, 0, 183, 1736, 1023, 1854, 1282,
                1905, 389, 174, 1962, 697, 959, 1638, 261, 219,
            ],
        ),
        (
            SamplerConfig {
                repeat_penalty: 1.2,
                temperature: 0.0,
                ..base
            },
            [
                1719, 924, 989, 267, 483, 325, 825, 1202, 1796, 178, 360, 1938, 117, 1854, 596,
                306, 1287, 41, 1592, 1575, 1418, 792, 1895, 288,
            ],
        ),
    ];
    for (config, expected) in cases {
        assert_eq!(tokens(&config), expected, "{config:?}");
    }
}

#[test]
fn a_random_seed_is_reported_and_repeats_its_tokens() {
    let mut chain = SamplerChain::new(&SamplerConfig::default()).unwrap();
    let seeded = SamplerConfig {
        seed: Some(chain.seed()),
        ..SamplerConfig::default()
    };
    let mut again = SamplerChain::new(&seeded).unwrap();
    for logits in steps(2000, 8) {
        assert_eq!(chain.sample(&logits), again.sample(&logits));
    }
    let seeds: Vec<u32> = (0..4)
        .map(|_| SamplerChain::new(&SamplerConfig::default()).unwrap().seed())
        .collect();
    assert!(seeds.iter().any(|&seed| seed != seeds[0]), "{seeds:?}");
}

#[test]
fn greedy_takes_the_first_of_equal_logits() {
    let config = SamplerConfig {
        temperature: -1.0,
        ..SamplerConfig::default()
    };
    assert_eq!(
        SamplerChain::new(&config)
            .unwrap()
            .sample(&[0.5, 2.0, 2.0, 1.0]),
        1
    );
}

#[test]
fn greedy_chooses_among_the_typical_candidates() {
    let config = SamplerConfig {
        temperature: 0.0,
        typical_p: 0.5,
        ..SamplerConfig::default()
    };
    let logits = [0.4f32, 0.2, 0.2, 0.2].map(f32::ln);
    assert_eq!(SamplerChain::new(&config).unwrap().sample(&logits), 1);
}

#[test]
fn strange_logits_still_give_a_token() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let everything = SamplerConfig {
        repeat_penalty: 1.5,
        typical_p: 0.9,
        ..SamplerConfig::default()
    };
    let off = SamplerConfig {
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        ..SamplerConfig::default()
    };
    let greedy = SamplerConfig {
        temperature: 0.0,
        ..SamplerConfig::default()
    };
    let cases: [(&[f32], &[u32]); 6] = [
        (&[nan, nan, nan], &[0, 1, 2]),
        (&[-inf, -inf, -inf], &[0, 1, 2]),
        (&[nan, 1.0, -inf], &[1]),
        (&[1.0, inf, nan, inf], &[1, 3]),
        (&[f32::MAX, -f32::MAX], &[0]),
        (&[0.0], &[0]),
    ];
    for config in [SamplerConfig::default(), everything, off, greedy] {
        for (logits, possible) in cases {
            let mut chain = SamplerChain::new(&config).unwrap();
            chain.accept(0);
            chain.accept(7); // not a token of this vocabulary
            for _ in 0..8 {
                let token = chain.sample(logits);
                assert!(
                    possible.contains(&token),
                    "{token} from {logits:?} by {config:?}"
                );
            }
        }
    }
}

#[test]
fn impossible_values_are_refused_by_name() {
    type Set = fn(&mut SamplerConfig, f32);
    let fields: [(&str, Set, &[f32]); 7] = [
        ("top_p", |c, v| c.top_p = v, &[f32::NAN, -0.1]),
        ("min_p", |c, v| c.min_p = v, &[f32::NAN, -0.1]),
        ("typical_p", |c, v| c.typical_p = v, &[f32::NAN, -0.1]),
        (
            "repeat_penalty",
            |c, v| c.repeat_penalty = v,
            &[f32::NAN, f32::INFINITY, 0.0, -1.0],
        ),
        (
            "frequency_penalty",
            |c, v| c.frequency_penalty = v,
            &[f32::NAN, f32::INFINITY],
        ),
        (
            "presence_penalty",
            |c, v| c.presence_penalty = v,
            &[f32::NAN, f32::NEG_INFINITY],
        ),
        (
            "temperature",
            |c, v| c.temperature = v,
            &[f32::NAN, f32::INFINITY],
        ),
    ];
    for (name, set, values) in fields {
        for &value in values {
            let mut config = SamplerConfig::default();
            set(&mut config, value);
            let error = SamplerChain::new(&config).err().expect(name);
            assert_eq!(error.option, name);
        }
    }
    let config = SamplerConfig {
        top_p: f32::NAN,
        ..SamplerConfig::default()
    };
    let message = SamplerChain::new(&config).err().unwrap().to_string();
    assert_eq!(
        message,
        "sampling: top_p = NaN is impossible; give a number from 0 to 1"
    );
}
