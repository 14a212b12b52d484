//! Charts as SVG: axes, lines, marks and bars. Colours are classes, which the page has for light and for dark.

use std::fmt::Write;

/// Around a plot: left, right, top, bottom.
const MARGINS: [f64; 4] = [58.0, 14.0, 10.0, 40.0];

/// Text within HTML or SVG.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A number in about three digits: `0.125`, `1.5`, `37`, `4,096`, `16.8 M`.
pub(super) fn short(number: f64) -> String {
    match number.abs() {
        n if n >= 1e9 => format!("{} G", digits(number / 1e9)),
        n if n >= 1e6 => format!("{} M", digits(number / 1e6)),
        n if n >= 1e3 => {
            let whole = number.round() as i64;
            match whole.abs() >= 1_000_000 {
                true => format!("{} M", digits(number / 1e6)),
                false => format!("{},{:03}", whole / 1000, whole.abs() % 1000),
            }
        }
        _ => digits(number),
    }
}

/// Three digits, without zeros behind the point.
fn digits(number: f64) -> String {
    let places = match number.abs() {
        n if n >= 100.0 || n == 0.0 => 0,
        n if n >= 10.0 => 1,
        n if n >= 1.0 => 2,
        n => (2.0 - n.log10().floor()).min(9.0) as usize,
    };
    let text = format!("{number:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// The values that one direction of a plot has.
pub(super) struct Axis {
    name: &'static str,
    low: f64,
    high: f64,
    is_log: bool,
    ticks: Vec<f64>,
}

impl Axis {
    /// An axis from 0 to a round number above all values.
    pub(super) fn linear(name: &'static str, values: impl IntoIterator<Item = f64>) -> Self {
        let most = values.into_iter().fold(0.0, f64::max);
        let most = if most > 0.0 { most } else { 1.0 };
        let power = 10_f64.powf((most / 5.0).log10().floor());
        let sizes = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let size = sizes.into_iter().find(|size| most / size <= 5.0);
        let size = size.unwrap_or(sizes[3]);
        let count = (most / size).ceil();
        Self {
            name,
            low: 0.0,
            high: count * size,
            is_log: false,
            ticks: (0..=count as i64).map(|i| i as f64 * size).collect(),
        }
    }

    /// Powers of ten around all values above 0. If they are near each other, values in between are
    /// added.
    pub(super) fn log(name: &'static str, values: impl IntoIterator<Item = f64>) -> Self {
        let positive = values.into_iter().filter(|value| *value > 0.0);
        let ends = positive.fold(None, |ends: Option<(f64, f64)>, value| match ends {
            None => Some((value, value)),
            Some((low, high)) => Some((low.min(value), high.max(value))),
        });
        let (least, most) = ends.unwrap_or((1.0, 10.0));
        // 1, 2, 5, 10, … around the values.
        let steps = |power: i32| [1.0, 2.0, 5.0].map(|factor| factor * 10_f64.powi(power));
        let (first, last) = (least.log10().floor(), most.log10().ceil());
        let all: Vec<f64> = (first as i32..=last as i32).flat_map(steps).collect();
        let low = all.iter().rev().find(|step| **step <= least * (1.0 + 1e-9));
        let high = all.iter().find(|step| **step >= most * (1.0 - 1e-9));
        let low = *low.unwrap_or(&all[0]);
        let high = *high.unwrap_or(&all[all.len() - 1]);
        let high = if high > low { high } else { 10.0 * low };
        let is_power = |step: f64| (step.log10() - step.log10().round()).abs() < 1e-9;
        let far = (high / low).log10() >= 2.0;
        let ticks = all.into_iter().filter(|step| (low..=high).contains(step));
        Self {
            name,
            low,
            high,
            is_log: true,
            ticks: ticks.filter(|step| !far || is_power(*step)).collect(),
        }
    }

    /// The same, with ticks at these values alone.
    pub(super) fn at(mut self, ticks: impl IntoIterator<Item = f64>) -> Self {
        self.ticks = ticks.into_iter().collect();
        self
    }

    /// The place of a value, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let place = match self.is_log {
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        place.clamp(0.0, 1.0)
    }

    pub(super) fn ends(&self) -> [f64; 2] {
        [self.low, self.high]
    }
}

/// Look of a mark: the device decides the colour, the type the form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Look {
    pub(super) colour: usize,
    pub(super) form: usize,
}

/// Colours that the page has, and forms.
pub(super) const COLOURS: usize = 6;
pub(super) const FORMS: usize = 3;

impl Look {
    fn colour(self) -> usize {
        self.colour % COLOURS
    }

    fn form(self) -> usize {
        self.form % FORMS
    }
}

/// A chart with two axes.
pub(super) struct Plot {
    x: Axis,
    y: Axis,
    size: [f64; 2],
    body: String,
}

impl Plot {
    pub(super) fn new(x: Axis, y: Axis, size: [f64; 2]) -> Self {
        let body = String::new();
        Self { x, y, size, body }
    }

    fn point(&self, x: f64, y: f64) -> (f64, f64) {
        let [left, right, top, bottom] = MARGINS;
        let [width, height] = self.size;
        (
            left + self.x.place(x) * (width - left - right),
            top + (1.0 - self.y.place(y)) * (height - top - bottom),
        )
    }

    /// A line through points.
    pub(super) fn line(&mut self, points: &[(f64, f64)], look: Look, title: &str) {
        self.path(
            points,
            &format!("l c{} f{}", look.colour(), look.form()),
            title,
        );
    }

    /// A thin line that others are held to.
    pub(super) fn limit(&mut self, points: &[(f64, f64)], look: Look, title: &str) {
        self.path(points, &format!("limit c{}", look.colour()), title);
    }

    fn path(&mut self, points: &[(f64, f64)], class: &str, title: &str) {
        let places = points.iter().map(|&(x, y)| {
            let (x, y) = self.point(x, y);
            format!("{x:.1} {y:.1}")
        });
        let path = places.collect::<Vec<_>>().join("L");
        let title = escaped(title);
        // Writing to a string cannot fail.
        let _ = write!(
            self.body,
            "<path class=\"{class}\" d=\"M{path}\"><title>{title}</title></path>"
        );
    }

    /// A line that keeps a value until the next one, with the area below it.
    pub(super) fn steps(&mut self, points: &[(f64, f64)], end: f64, look: Look, title: &str) {
        let mut corners = Vec::with_capacity(2 * points.len() + 1);
        for &(x, y) in points {
            if let Some(&(_, before)) = corners.last() {
                corners.push((x, before));
            }
            corners.push((x, y));
        }
        if let Some(&(_, last)) = corners.last() {
            corners.push((end, last));
        }
        let Some(&(begin, _)) = corners.first() else {
            return;
        };
        let area: Vec<_> = [(begin, 0.0)]
            .into_iter()
            .chain(corners.iter().copied())
            .chain([(end, 0.0)])
            .collect();
        self.path(&area, &format!("area c{}", look.colour()), title);
        self.path(&corners, &format!("l c{} f0", look.colour()), title);
    }

    /// A mark at a point, whose title appears under the pointer.
    pub(super) fn mark(&mut self, (x, y): (f64, f64), look: Look, title: &str) {
        let (x, y) = self.point(x, y);
        let (colour, form, title) = (look.colour(), look.form(), escaped(title));
        let shape = match form {
            0 => format!("circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\""),
            1 => format!(
                "rect x=\"{:.1}\" y=\"{:.1}\" width=\"7\" height=\"7\"",
                x - 3.5,
                y - 3.5
            ),
            _ => format!("path d=\"M{x:.1} {:.1}l4 7h-8z\"", y - 4.0),
        };
        let _ = write!(
            self.body,
            "<{shape} class=\"m c{colour} f{form}\"><title>{title}</title></{}>",
            shape.split(' ').next().unwrap_or_default()
        );
    }

    /// The picture; `label` describes it for screen readers.
    pub(super) fn finish(self, label: &str) -> String {
        let [left, right, top, bottom] = MARGINS;
        let [width, height] = self.size;
        let mut svg = open(self.size, label);
        let floor = height - bottom;
        for &tick in &self.y.ticks {
            let (_, y) = self.point(self.x.low, tick);
            let _ = write!(
                svg,
                "<path class=\"rule\" d=\"M{left} {y:.1}H{:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" class=\"end\">{}</text>",
                width - right,
                left - 6.0,
                y + 4.0,
                short(tick)
            );
        }
        for &tick in &self.x.ticks {
            let (x, _) = self.point(tick, self.y.low);
            let _ = write!(
                svg,
                "<path class=\"rule\" d=\"M{x:.1} {top}V{floor:.1}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" class=\"middle\">{}</text>",
                floor + 15.0,
                short(tick)
            );
        }
        let middle = (left + width - right) / 2.0;
        let centre = (top + floor) / 2.0;
        let _ = write!(
            svg,
            "<text x=\"{middle:.1}\" y=\"{:.1}\" class=\"middle name\">{}</text>\
             <text transform=\"translate(12 {centre:.1}) rotate(-90)\" class=\"middle name\">{}</text>{}</svg>",
            height - 6.0,
            escaped(self.x.name),
            escaped(self.y.name),
            self.body
        );
        svg
    }
}

fn open([width, height]: [f64; 2], label: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">",
        escaped(label)
    )
}

/// A bar of a [`bars`] chart.
pub(super) struct Bar {
    /// The axis title.
    pub(super) name: String,
    pub(super) value: f64,
    /// The text after it.
    pub(super) told: String,
    pub(super) class: String,
}

/// Bars below each other. On a logarithmic axis they begin at 1, to the left where they are less.
pub(super) fn bars(axis: &Axis, bars: &[Bar], label: &str) -> String {
    const ROW: f64 = 20.0;
    const NAMES: f64 = 250.0;
    const TOLD: f64 = 130.0;
    const WIDTH: f64 = 760.0;
    let height = bars.len() as f64 * ROW + 36.0;
    let floor = height - 32.0;
    let at = |value: f64| NAMES + axis.place(value) * (WIDTH - NAMES - TOLD);
    let begin = at(if axis.is_log { 1.0 } else { 0.0 });
    let mut svg = open([WIDTH, height], label);
    for &tick in &axis.ticks {
        let x = at(tick);
        let _ = write!(
            svg,
            "<path class=\"rule\" d=\"M{x:.1} 0V{floor:.1}\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" class=\"middle\">{}</text>",
            floor + 14.0,
            short(tick)
        );
    }
    let _ = write!(svg, "<path class=\"base\" d=\"M{begin:.1} 0V{floor:.1}\"/>");
    for (row, bar) in bars.iter().enumerate() {
        let y = row as f64 * ROW;
        let end = at(bar.value);
        let (from, to) = (begin.min(end), begin.max(end));
        let text = y + ROW / 2.0 + 4.0;
        let (name, told) = (escaped(&bar.name), escaped(&bar.told));
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{text:.1}\" class=\"end row\">{name}</text>\
             <rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" class=\"bar {}\">\
             <title>{name}: {told}</title></rect>\
             <text x=\"{:.1}\" y=\"{text:.1}\" class=\"row\">{told}</text>",
            NAMES - 8.0,
            y + 3.0,
            (to - from).max(1.0),
            ROW - 6.0,
            bar.class,
            to + 6.0,
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" class=\"middle name\">{}</text></svg>",
        (NAMES + WIDTH - TOLD) / 2.0,
        height - 3.0,
        escaped(axis.name)
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (number, told) in [
            (0.0, "0"),
            (0.125, "0.125"),
            (0.000_012_3, "0.0000123"),
            (1.5, "1.5"),
            (2.0, "2"),
            (37.26, "37.3"),
            (4096.0, "4,096"),
            (262_144.0, "262,144"),
            (999_999.7, "1 M"),
            (16_777_216.0, "16.8 M"),
            (2e9, "2 G"),
        ] {
            assert_eq!(short(number), told);
        }
    }

    #[test]
    fn axes_have_round_ends_around_the_values() {
        let axis = Axis::linear("", [3.0, 4.2]);
        assert_eq!((axis.ends(), axis.ticks.len()), ([0.0, 5.0], 6));
        assert_eq!(Axis::linear("", []).ends(), [0.0, 1.0]);
        let axis = Axis::log("", [0.3, 0.0, 700.0]);
        assert_eq!(axis.ends(), [0.2, 1000.0]);
        assert_eq!(axis.ticks, [1.0, 10.0, 100.0, 1000.0]);
        let near = Axis::log("", [1.0, 3.0]);
        assert_eq!((near.ends(), near.ticks.len()), ([1.0, 5.0], 3));
        assert_eq!(Axis::log("", [2.0]).ends(), [2.0, 20.0]);
        assert_eq!(axis.place(0.0), 0.0);
        assert!((axis.place(1000.0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn charts_are_well_formed() {
        let look = Look { colour: 7, form: 4 };
        let mut plot = Plot::new(
            Axis::log("x", [1.0, 100.0]),
            Axis::linear("y", [5.0]),
            [300.0, 200.0],
        );
        plot.line(&[(1.0, 2.0), (100.0, 5.0)], look, "a & b");
        plot.limit(&[(1.0, 5.0), (100.0, 5.0)], look, "limit");
        plot.steps(&[(1.0, 1.0), (10.0, 4.0)], 100.0, look, "memory");
        for form in 0..FORMS {
            plot.mark((10.0, 3.0), Look { colour: 0, form }, "<mark>");
        }
        let bar = Bar {
            name: "a".to_owned(),
            value: 0.5,
            told: "½".to_owned(),
            class: "c0".to_owned(),
        };
        for svg in [
            plot.finish("plot"),
            bars(&Axis::log("×", [0.5, 2.0]), &[bar], "bars"),
        ] {
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            for tag in ["svg", "title", "text", "circle"] {
                let (begins, ends) = (format!("<{tag}"), format!("</{tag}>"));
                assert_eq!(
                    svg.matches(&begins).count(),
                    svg.matches(&ends).count(),
                    "{svg}"
                );
            }
        }
        assert_eq!(escaped("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
    }
}
