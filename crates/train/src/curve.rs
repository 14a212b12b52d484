//! Loss curves as a picture.

use std::fmt::Write;

use crate::History;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
/// Around the plot: left, right, top, bottom.
const MARGINS: [f64; 4] = [56.0, 16.0, 16.0, 40.0];
/// Points of a curve; more are means of several.
const POINTS: usize = 500;

/// The losses of a run as an SVG picture: of training in blue, of validation in orange, over steps.
pub fn loss_curve(history: &History) -> String {
    let [left, right, top, bottom] = MARGINS;
    let steps = history.losses.len().max(1) as f64;
    let per_point = history.losses.len().div_ceil(POINTS).max(1);
    let training = (history.losses.chunks(per_point).enumerate()).map(|(i, losses)| {
        let step = (i * per_point) as f64 + (losses.len() as f64 + 1.0) / 2.0;
        (step, losses.iter().sum::<f64>() / losses.len() as f64)
    });
    let training: Vec<(f64, f64)> = training.collect();
    let validation: Vec<(f64, f64)> = history
        .validation
        .iter()
        .map(|&(step, loss)| (step as f64, loss))
        .collect();
    let all = || training.iter().chain(&validation).map(|&(_, loss)| loss);
    let ticks = ticks(
        all().fold(f64::INFINITY, f64::min),
        all().fold(f64::NEG_INFINITY, f64::max),
    );
    let (low, high) = (ticks[0], ticks[ticks.len() - 1]);
    let x = |step: f64| left + step / steps * (WIDTH - left - right);
    let y = |loss: f64| top + (high - loss) / (high - low) * (HEIGHT - top - bottom);

    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<title>Loss over steps</title>\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    // Writing to a string cannot fail.
    for &tick in &ticks {
        let (y, end) = (y(tick), WIDTH - right);
        let _ = writeln!(svg, "<path d=\"M{left} {y:.1}H{end}\" stroke=\"#ddd\"/>");
        let (x, y) = (left - 8.0, y + 4.0);
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>",
            (tick * 1e6).round() / 1e6
        );
    }
    for quarter in 0..=4 {
        let step = (steps * f64::from(quarter) / 4.0).round();
        let (x, y) = (x(step), HEIGHT - bottom + 18.0);
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{step}</text>"
        );
    }
    for (points, name, colour, place) in [
        (&training, "training", "#1f77b4", 0.0),
        (&validation, "validation", "#ff7f0e", 18.0),
    ] {
        if points.is_empty() {
            continue;
        }
        let path: Vec<String> = points
            .iter()
            .map(|&(step, loss)| format!("{:.1} {:.1}", x(step), y(loss)))
            .collect();
        let path = path.join("L");
        let _ = writeln!(
            svg,
            "<path d=\"M{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
        );
        let (x, y) = (WIDTH - right - 8.0, top + 16.0 + place);
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\" fill=\"{colour}\">{name}</text>"
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// Round numbers, at least two, from one that is not above `low` to one that is not below `high`.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let (low, high) = match low.is_finite() && high.is_finite() {
        true => (low, high),
        false => (0.0, 1.0),
    };
    let span = (high - low).max(1e-3);
    let power = 10f64.powf((span / 5.0).log10().floor());
    let sizes = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    let size = sizes
        .into_iter()
        .find(|size| span / size <= 6.0)
        .unwrap_or(sizes[3]);
    let (first, last) = ((low / size).floor() as i64, (high / size).ceil() as i64);
    (first..=last.max(first + 1))
        .map(|tick| tick as f64 * size)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ticks are multiples of a decimal fraction.
    const ROUNDING: f64 = 1e-12;

    #[test]
    fn ticks_are_round_and_around_the_losses() {
        assert_eq!(ticks(2.3, 5.9), [2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(ticks(4.0, 4.0).len(), 2);
        assert_eq!(ticks(f64::INFINITY, f64::NEG_INFINITY).first(), Some(&0.0));
        for (low, high) in [(0.001, 0.002), (1.0, 11.5), (3.05, 3.07)] {
            let ticks = ticks(low, high);
            assert!((2..=9).contains(&ticks.len()), "{ticks:?}");
            assert!(
                ticks[0] <= low + ROUNDING && ticks[ticks.len() - 1] >= high - ROUNDING,
                "{ticks:?}"
            );
        }
    }

    #[test]
    fn a_picture_has_both_curves_within_it() {
        let history = History {
            losses: (0..2000)
                .map(|step| 1.0 + 5.0 / f64::from(step + 1))
                .collect(),
            validation: vec![(1000, 1.5), (2000, 1.4)],
        };
        let svg = loss_curve(&history);
        assert_eq!(svg.matches("stroke-width").count(), 2);
        assert!(svg.contains(">training</text>") && svg.contains(">2000</text>"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        assert_eq!(
            loss_curve(&History::default())
                .matches("stroke-width")
                .count(),
            0
        );
    }
}
