//! The sampler chain as a whole, against llama.cpp's.

use std::sync::Arc;

use rustorch_grammar::{Grammar, GrammarError, Piece, Vocabulary};
use rustorch_llm::LlmError;
use rustorch_llm::sampler::{Breakers, Dry, OptionValue, SamplerChain, SamplerConfig, SamplerKind};

/// Logits of `steps` decode steps over `vocab` tokens: a linear congruential sequence, exact in
/// f32. Eight tokens are always strong, so that the penalties have repeats to act on.
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
        let token = chain.sample(&logits).unwrap();
        chain.accept(token);
        token
    };
    steps(2000, 24).into_iter().map(choose).collect()
}

/// The choices of llama.cpp 0.5.0's own samplers (libstdc++ 12) for these logits with seed 42.
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
            base.clone()
                .repeat_last_n(16)
                .repeat_penalty(1.3)
                .frequency_penalty(0.2)
                .presence_penalty(0.1),
            [
                123, 521, 804, 913, 541, 715, 28, 700, 398, 471, 387, 1737, 792, 1854, 600, 1950,
                362, 41, 1592, 226, 1234, 614, 401, 246,
            ],
        ),
        (
            base.clone().top_k(0),
            [
                1258, 700, 1867, 47, 400, 700, 1626, 1778, 1854, 574, 1546, 649, 1209, 1854, 1347,
                1165, 458, 41, 194, 1877, 1784, 1123, 1159, 1601,
            ],
        ),
        (
            base.clone().top_k(0).top_p(1.0).min_p(0.1).temperature(1.5),
            [
                1565, 384, 1486, 1216, 818, 159, 882, 678, 254, 1247, 117, 1481, 1904, 0, 1992,
                1195, 1163, 4, 22, 960, 798, 105, 1951, 400,
            ],
        ),
        (
            base.clone()
                .top_k(100)
                .typical_p(0.7)
                .min_p(0.02)
                .temperature(1.2),
            [
                359, 164, 716, 1193, 1086, 1410, 1888, 600, 1739, 1379, 120, 661, 1228, 1910, 626,
                1011, 881, 1077, 473, 1475, 108, 1781, 426, 622,
            ],
        ),
        (
            base.clone().top_k(0).top_p(1.0).min_p(0.0).temperature(2.0),
            [
                1582, 384, 1506, 1193, 867, 168, 921, 675, 254, 1264, 119, 1476, 1903, 0, 1988,
                1198, 1183, 6, 32, 958, 790, 105, 1951, 430,
            ],
        ),
        (
            base.clone()
                .top_k(200)
                .top_p(0.99)
                .min_p(0.0)
                .temperature(3.0),
            [
                382, 969, 100, 1796, 412, 495, 1943, 1835, 1205, 0, 183, 1736, 1023, 1854, 1282,
                1905, 389, 174, 1962, 697, 959, 1638, 261, 219,
            ],
        ),
        (
            base.repeat_penalty(1.2).temperature(0.0),
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

/// The chain of the default with another draw.
fn with_adaptive_p() -> Vec<SamplerKind> {
    [&SamplerKind::DEFAULT[..], &[SamplerKind::AdaptiveP]].concat()
}

fn base() -> SamplerConfig {
    SamplerConfig {
        seed: Some(42),
        ..SamplerConfig::default()
    }
}

/// The same for samplers that are off by default.
#[test]
fn other_samplers_choose_the_tokens_of_llama_cpp() {
    let cases: [(SamplerConfig, [u32; 24]); 12] = [
        (
            base().mirostat(1).mirostat_tau(5.0).mirostat_eta(0.1),
            [
                1719, 924, 547, 267, 211, 93, 825, 1786, 600, 178, 1467, 1938, 39, 864, 962, 1323,
                4, 170, 1592, 1796, 801, 1044, 1895, 442,
            ],
        ),
        (
            base()
                .mirostat(1)
                .mirostat_tau(3.0)
                .mirostat_eta(0.5)
                .temperature(1.5),
            [
                1719, 924, 989, 267, 483, 325, 825, 1202, 1796, 178, 360, 1938, 117, 1854, 596,
                306, 1287, 41, 1592, 1575, 1418, 792, 1895, 288,
            ],
        ),
        (
            base().mirostat(2).mirostat_tau(5.0).mirostat_eta(0.1),
            [
                1727, 1528, 960, 1865, 78, 557, 143, 638, 276, 953, 1847, 661, 671, 1854, 951,
                1822, 1438, 41, 1592, 700, 1001, 1891, 70, 1357,
            ],
        ),
        (
            base()
                .mirostat(2)
                .mirostat_tau(2.0)
                .mirostat_eta(0.3)
                .temperature(1.2),
            [
                1719, 924, 989, 267, 483, 325, 277, 1202, 766, 178, 688, 1938, 1338, 1854, 1658,
                306, 1287, 234, 1592, 1575, 287, 792, 1895, 1592,
            ],
        ),
        (
            base().xtc_probability(0.5).xtc_threshold(0.02),
            [
                1843, 521, 804, 1947, 541, 715, 28, 700, 833, 766, 568, 794, 615, 1144, 893, 500,
                1112, 1126, 1592, 1460, 259, 221, 142, 246,
            ],
        ),
        (
            base()
                .top_n_sigma(1.5)
                .temperature(1.5)
                .top_k(0)
                .top_p(1.0)
                .min_p(0.0),
            [
                1582, 384, 1493, 1196, 821, 159, 913, 675, 255, 1255, 119, 1481, 1903, 0, 1992,
                1198, 1179, 4, 32, 958, 798, 105, 1951, 411,
            ],
        ),
        (
            base().dynatemp_range(0.5).dynatemp_exponent(1.2),
            [
                950, 521, 804, 1898, 1326, 715, 267, 700, 398, 471, 387, 1737, 1912, 1854, 893,
                1601, 362, 41, 1592, 700, 26, 1891, 142, 1626,
            ],
        ),
        (
            SamplerConfig {
                samplers: with_adaptive_p(),
                ..base()
            }
            .adaptive_target(0.3)
            .adaptive_decay(0.9),
            [
                950, 521, 804, 1898, 1326, 715, 267, 700, 398, 471, 387, 1737, 1912, 1854, 893,
                1601, 362, 41, 1592, 700, 1234, 1891, 142, 246,
            ],
        ),
        (
            SamplerConfig {
                samplers: vec![SamplerKind::AdaptiveP, SamplerKind::TopK],
                ..base()
            }
            .top_k(100),
            [
                1977, 384, 1196, 470, 1790, 458, 600, 562, 276, 69, 1847, 1095, 1417, 1854, 956,
                929, 1942, 41, 1378, 600, 1302, 1821, 1182, 1126,
            ],
        ),
        (
            SamplerConfig {
                samplers: SamplerKind::sequence("tmk").unwrap(),
                ..base()
            }
            .temperature(2.0)
            .min_p(0.1)
            .top_k(30),
            [
                1038, 1197, 1567, 1264, 700, 1093, 69, 1191, 452, 821, 387, 728, 991, 1854, 1581,
                1348, 687, 41, 1592, 690, 112, 1891, 1650, 1357,
            ],
        ),
        (
            SamplerConfig {
                logit_bias: vec![(700, 3.0), (1854, f32::NEG_INFINITY), (5, 12.5)],
                ..base()
            },
            [
                5, 700, 5, 5, 700, 700, 5, 5, 5, 5, 5, 1685, 1149, 5, 700, 5, 700, 5, 5, 5, 5, 5,
                395, 5,
            ],
        ),
        (
            SamplerConfig {
                samplers: SamplerKind::sequence("kyxt").unwrap(),
                ..base()
            }
            .top_k(100)
            .typical_p(0.7)
            .xtc_probability(1.0)
            .xtc_threshold(0.01)
            .temperature(1.2),
            [
                1072, 1332, 1118, 1874, 240, 1528, 227, 482, 254, 592, 207, 1965, 1166, 451, 1258,
                123, 1721, 92, 238, 1877, 456, 1120, 1111, 1243,
            ],
        ),
    ];
    for (config, expected) in cases {
        assert_eq!(tokens(&config), expected, "{config:?}");
    }
}

/// A text of eight tokens, so that there is much to repeat.
#[test]
fn dry_chooses_the_tokens_of_llama_cpp() {
    let dry = |multiplier, base, allowed_length, last_n, breakers: &[&[u32]]| Dry {
        dry_multiplier: multiplier,
        dry_base: base,
        dry_allowed_length: allowed_length,
        dry_penalty_last_n: last_n,
        breakers: Arc::new(Breakers::of_tokens(breakers)),
        ..Dry::default()
    };
    let cases: [(Dry, [u32; 200]); 3] = [
        (
            dry(2.0, 1.75, 2, 64, &[]),
            [
                5, 1, 6, 3, 4, 1, 3, 4, 0, 5, 0, 6, 7, 0, 7, 4, 3, 0, 0, 3, 2, 0, 7, 1, 0, 4, 4, 7,
                4, 6, 5, 2, 0, 6, 4, 2, 0, 1, 3, 6, 6, 6, 1, 3, 1, 5, 2, 2, 4, 0, 6, 2, 4, 7, 5, 2,
                5, 5, 7, 6, 5, 3, 5, 7, 4, 1, 1, 1, 0, 2, 2, 2, 0, 2, 4, 5, 4, 6, 4, 6, 6, 3, 0, 5,
                6, 5, 5, 1, 4, 3, 7, 6, 4, 1, 0, 0, 5, 1, 3, 2, 6, 4, 3, 5, 0, 4, 3, 0, 7, 5, 6, 6,
                5, 1, 1, 6, 2, 3, 6, 3, 2, 2, 6, 2, 6, 0, 2, 1, 1, 5, 4, 6, 2, 3, 0, 2, 5, 4, 0, 2,
                2, 4, 4, 1, 7, 3, 7, 2, 0, 2, 6, 5, 4, 3, 3, 3, 1, 2, 2, 3, 4, 7, 3, 4, 5, 1, 4, 4,
                6, 4, 1, 5, 6, 2, 0, 7, 3, 3, 7, 5, 5, 0, 3, 4, 0, 1, 7, 4, 1, 7, 7, 4, 7, 1, 1, 5,
                4, 6, 2, 7,
            ],
        ),
        (
            dry(1.5, 1.5, 1, 64, &[&[3], &[5, 6]]),
            [
                5, 1, 6, 3, 4, 1, 2, 4, 0, 5, 0, 6, 7, 0, 7, 4, 4, 0, 0, 3, 2, 0, 6, 1, 0, 2, 5, 7,
                5, 6, 5, 3, 0, 6, 4, 3, 0, 1, 4, 6, 4, 6, 0, 3, 2, 6, 2, 1, 3, 0, 4, 3, 4, 7, 5, 3,
                5, 4, 7, 6, 6, 3, 5, 7, 3, 1, 3, 1, 0, 3, 2, 2, 0, 2, 4, 5, 2, 7, 3, 6, 7, 1, 1, 5,
                5, 3, 4, 1, 4, 3, 7, 4, 4, 0, 0, 0, 6, 1, 3, 2, 5, 3, 2, 5, 0, 5, 3, 1, 7, 3, 6, 5,
                3, 1, 2, 6, 2, 3, 6, 3, 0, 1, 6, 3, 5, 0, 3, 2, 1, 3, 4, 7, 4, 3, 0, 3, 4, 3, 0, 2,
                1, 3, 4, 2, 7, 2, 7, 2, 0, 4, 6, 4, 3, 4, 3, 3, 1, 2, 2, 4, 4, 7, 3, 5, 6, 1, 4, 5,
                6, 4, 0, 5, 5, 2, 2, 7, 4, 3, 6, 5, 4, 1, 3, 4, 2, 2, 7, 5, 1, 7, 7, 3, 7, 1, 1, 5,
                7, 6, 2, 6,
            ],
        ),
        (
            dry(4.0, 1.0, 1, 12, &[&[2, 1]]),
            [
                5, 1, 6, 3, 4, 1, 2, 4, 0, 5, 0, 6, 7, 0, 7, 4, 4, 1, 0, 2, 2, 0, 5, 1, 1, 5, 4, 7,
                4, 6, 5, 3, 0, 7, 3, 3, 1, 2, 3, 7, 7, 6, 1, 3, 2, 5, 2, 1, 4, 0, 6, 2, 4, 7, 4, 2,
                6, 5, 7, 6, 4, 3, 5, 6, 3, 1, 2, 1, 0, 3, 2, 2, 0, 1, 5, 7, 4, 6, 4, 5, 5, 1, 0, 5,
                6, 5, 3, 1, 4, 3, 7, 6, 4, 1, 0, 0, 5, 1, 3, 1, 6, 5, 3, 5, 0, 4, 3, 0, 7, 5, 7, 6,
                3, 2, 1, 6, 2, 3, 6, 1, 0, 2, 6, 4, 5, 0, 1, 3, 1, 6, 5, 6, 1, 2, 0, 2, 5, 3, 0, 1,
                1, 6, 5, 1, 7, 3, 7, 2, 0, 3, 4, 4, 3, 3, 2, 4, 0, 2, 2, 6, 4, 7, 3, 6, 6, 1, 4, 4,
                6, 3, 0, 5, 5, 2, 0, 7, 3, 6, 7, 4, 5, 0, 2, 4, 0, 1, 7, 5, 2, 7, 7, 4, 7, 1, 1, 5,
                6, 6, 2, 5,
            ],
        ),
    ];
    for (dry, expected) in cases {
        let config = SamplerConfig {
            samplers: vec![SamplerKind::Dry],
            dry,
            ..base()
        };
        let mut chain = SamplerChain::new(&config).unwrap();
        let mut state = 7u32;
        for (i, expected) in expected.into_iter().enumerate() {
            let logits = [(); 8].map(|()| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as f32 / 8_388_608.0
            });
            let token = chain.sample(&logits).unwrap();
            assert_eq!(token, expected, "token {i} by {config:?}");
            chain.advance(token).unwrap();
        }
    }
}

/// A vocabulary of letters, of which the first token ends a text.
fn letters() -> Vocabulary {
    let pieces: Vec<Piece> = (b'`'..=b'z')
        .map(|letter| Piece::Bytes(vec![letter]))
        .collect();
    Vocabulary::from_pieces(&pieces, &[0]).unwrap()
}

/// A text of letters, as long as the form has it go on.
fn text(config: &SamplerConfig, grammar: &str, banned: &[u32]) -> Result<String, GrammarError> {
    let mut chain = SamplerChain::new(config).unwrap();
    chain.constrain(Grammar::Regex(grammar.to_owned()).constrain(&letters())?);
    chain.ban(banned);
    assert_eq!(chain.selection().best, None);
    let mut text = String::new();
    for mut logits in steps(1000, 30) {
        // More than the vocabulary has tokens, as models have: these are in no form.
        logits.truncate(40);
        let token = chain.sample(&logits)?;
        chain.advance(token)?;
        if token != 0 {
            text.push(char::from(b'`' + token as u8));
        }
        if token == 0 || chain.is_complete() {
            return Ok(text);
        }
    }
    Ok(text)
}

#[test]
fn what_is_chosen_has_its_form() {
    let greedy = base().temperature(0.0);
    for config in [base(), greedy] {
        assert_eq!(text(&config, "hello", &[]), Ok("hello".to_owned()));
        let vowels = text(&config, "[aeiou]{8}", &[]).unwrap();
        assert_eq!(vowels.len(), 8);
        assert!(vowels.chars().all(|c| "aeiou".contains(c)), "{vowels}");
        // Without its end, a text ends where nothing follows.
        assert_eq!(text(&config, "hello", &[0]), Ok("hello".to_owned()));
        let banned = text(&config, "hello", &[5]);
        assert!(
            matches!(banned, Err(GrammarError::Failed { .. })),
            "{banned:?}"
        );
    }
}

/// The best token of the form, whether the chain looks at others first or not.
#[test]
fn a_greedy_choice_is_that_of_masking_first() {
    let config = base().temperature(0.0);
    let mut free = Grammar::Regex("[aeiou]+".to_owned())
        .constrain(&letters())
        .unwrap();
    let mut chain = SamplerChain::new(&config).unwrap();
    chain.constrain(free.clone());
    for mut logits in steps(1000, 30) {
        logits.truncate(27);
        let chosen = chain.sample(&logits).unwrap();
        free.mask().unwrap().apply(&mut logits);
        let best = (0..27)
            .max_by(|&a, &b| logits[a].total_cmp(&logits[b]))
            .unwrap();
        assert_eq!(chosen, best as u32);
        if chosen == 0 {
            break;
        }
        chain.advance(chosen).unwrap();
        free.accept(chosen).unwrap();
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
        assert_eq!(
            chain.sample(&logits).unwrap(),
            again.sample(&logits).unwrap()
        );
    }
    let seeds: Vec<u32> = (0..4)
        .map(|_| SamplerChain::new(&SamplerConfig::default()).unwrap().seed())
        .collect();
    assert!(seeds.iter().any(|&seed| seed != seeds[0]), "{seeds:?}");
}

#[test]
fn greedy_takes_the_first_of_equal_logits() {
    let config = SamplerConfig::default().temperature(-1.0);
    assert_eq!(
        SamplerChain::new(&config)
            .unwrap()
            .sample(&[0.5, 2.0, 2.0, 1.0]),
        Ok(1)
    );
}

#[test]
fn greedy_chooses_among_the_typical_candidates() {
    let config = SamplerConfig::default().temperature(0.0).typical_p(0.5);
    let logits = [0.4f32, 0.2, 0.2, 0.2].map(f32::ln);
    assert_eq!(SamplerChain::new(&config).unwrap().sample(&logits), Ok(1));
}

#[test]
fn kept_probabilities_change_no_choice() {
    let seeded = SamplerConfig {
        seed: Some(42),
        ..SamplerConfig::default()
    };
    for config in [
        seeded.clone(),
        seeded.clone().temperature(0.0),
        seeded.clone().top_k(0).top_p(1.0).min_p(0.0),
        seeded.mirostat(2),
    ] {
        let mut plain = SamplerChain::new(&config).unwrap();
        let mut keeps = SamplerChain::new(&config).unwrap();
        keeps.keep_probabilities();
        for logits in steps(2000, 24) {
            let token = plain.sample(&logits).unwrap();
            assert_eq!(keeps.sample(&logits), Ok(token));
            let left = keeps.probabilities();
            assert!(left.is_sorted_by(|(_, p), (_, q)| p >= q));
            assert!(left.iter().any(|(id, _)| *id == token));
            let sum: f32 = left.iter().map(|(_, p)| p).sum();
            assert!((sum - 1.0).abs() < 1e-4, "{sum}");
            plain.accept(token);
            keeps.accept(token);
        }
        assert!(plain.probabilities().is_empty());
    }
}

#[test]
fn strange_logits_still_give_a_token() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let everything = SamplerConfig::default().repeat_penalty(1.5).typical_p(0.9);
    let off = SamplerConfig::default().top_k(0).top_p(1.0).min_p(0.0);
    let greedy = SamplerConfig::default().temperature(0.0);
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
                let token = chain.sample(logits).unwrap();
                assert!(
                    possible.contains(&token),
                    "{token} from {logits:?} by {config:?}"
                );
            }
        }
    }
}

/// Does an error refuse the value of this option?
fn names(error: LlmError, name: &str) -> bool {
    matches!(error, LlmError::Sampler { option, .. } if option == name)
}

#[test]
fn impossible_values_are_refused_by_name() {
    let (nan, infinity) = (f32::NAN, f32::INFINITY);
    let options: [(&str, &[f32]); 18] = [
        ("xtc_probability", &[nan, 1.5]),
        ("xtc_threshold", &[nan, -0.1]),
        ("dry_base", &[nan, 0.9]),
        ("dry_multiplier", &[nan]),
        ("dry_allowed_length", &[-1.0, 0.5]),
        ("dry_penalty_last_n", &[-1.0]),
        ("dynatemp_range", &[infinity]),
        ("dynatemp_exponent", &[nan]),
        ("adaptive_decay", &[nan, 1.5]),
        ("mirostat", &[-1.0, 3.0, nan]),
        ("top_k", &[1.5, infinity]),
        ("top_p", &[nan, -0.1]),
        ("min_p", &[nan, -0.1]),
        ("typical_p", &[nan, -0.1]),
        ("repeat_penalty", &[nan, infinity, 0.0, -1.0]),
        ("frequency_penalty", &[nan, infinity]),
        ("presence_penalty", &[nan, -infinity]),
        ("temperature", &[nan, infinity]),
    ];
    for (name, values) in options {
        let option = SamplerConfig::options().find(|option| option.name == name);
        let option = option.expect(name);
        for &value in values {
            let mut config = SamplerConfig::default();
            let error = option.set(&mut config, OptionValue::Number(value));
            assert!(names(error.unwrap_err(), name), "{name}");
            assert_eq!(config, SamplerConfig::default(), "{name}");
        }
        let texts = OptionValue::Texts(vec!["1".to_owned()]);
        assert!(option.set(&mut SamplerConfig::default(), texts).is_err());
    }
    for bias in [nan, infinity] {
        let config = SamplerConfig {
            logit_bias: vec![(0, bias)],
            ..SamplerConfig::default()
        };
        let error = SamplerChain::new(&config).err().unwrap();
        assert!(names(error, "logit_bias"));
    }
    let config = SamplerConfig::default().top_p(nan);
    let message = SamplerChain::new(&config).err().unwrap().to_string();
    assert_eq!(
        message,
        "sampling: top_p = NaN is out of range; give a number from 0 to 1"
    );
    let infill = SamplerConfig {
        samplers: vec![SamplerKind::Infill],
        ..SamplerConfig::default()
    };
    let message = SamplerChain::new(&infill).err().unwrap().to_string();
    assert!(message.contains("a model with a vocabulary"), "{message}");
}

/// Each option is set by its name, as by the builder, and keeps its default until then.
#[test]
fn options_are_set_by_name() {
    let names: Vec<&str> = SamplerConfig::options().map(|option| option.name).collect();
    let mut known = names.clone();
    known.sort_unstable();
    known.dedup();
    assert_eq!(known.len(), names.len(), "{names:?}");
    let mut config = SamplerConfig::default();
    let mut set = |name: &str, value| {
        let option = SamplerConfig::options().find(|option| option.name == name);
        option.expect(name).set(&mut config, value).expect(name);
    };
    set("top_k", OptionValue::Integer(7));
    // Files of settings do not always tell whole numbers from others.
    set("repeat_last_n", OptionValue::Number(-1.0));
    set("temperature", OptionValue::Integer(1));
    set("dry_sequence_breakers", OptionValue::Texts(Vec::new()));
    let built = SamplerConfig::default()
        .top_k(7)
        .repeat_last_n(-1)
        .temperature(1.0)
        .dry_sequence_breakers(Vec::new());
    assert_eq!(config, built);
    for option in SamplerConfig::options() {
        let default = option.get(&SamplerConfig::default());
        let mut copy = SamplerConfig::default();
        option.set(&mut copy, default).expect(option.name);
        assert_eq!(copy, SamplerConfig::default());
    }
}
