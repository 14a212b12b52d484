use super::*;

#[test]
fn steps_take_no_longer_than_their_run() {
    let elapsed = Duration::from_millis(10);
    for (milliseconds, expected) in [
        (&[][..], true),
        (&[0, 0], true),
        (&[3, 6], true),
        (&[10, 1], true),
        (&[15, 15], false),
        (&[0, u64::MAX], false),
    ] {
        let times: Vec<Duration> =
            (milliseconds.iter().copied().map(Duration::from_millis)).collect();
        assert_eq!(can_be(&times, elapsed), expected, "{milliseconds:?}");
    }
    assert!(!can_be(&[Duration::MAX; 2], Duration::MAX));
}
