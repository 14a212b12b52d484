//! Einstein summation.

use std::collections::BTreeMap;
use std::fmt;

use rustorch_ir::OpError;
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::api::promote::result_dtype;
use crate::error::RusTorchResult;

const NAME: &str = "einsum";

/// A dimension's name: a letter, or a dimension of `...`, counted from the last one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Label {
    Dots(usize),
    Letter(char),
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dots(_) => f.write_str("..."),
            Self::Letter(letter) => letter.fmt(f),
        }
    }
}

/// A tensor whose dimensions have names, each once.
#[derive(Clone)]
struct Named {
    tensor: Tensor,
    labels: Vec<Label>,
}

type Sizes = BTreeMap<Label, usize>;

#[track_calls]
impl Tensor {
    /// The sum of products that an equation such as `"bij,bjk->bik"` describes. Letters name
    /// dimensions, and `...` stands for broadcast dimensions. Letters that occur only on the left
    /// are summed over. Without `->`, the result has the letters that occur once, in alphabetic
    /// order, after `...`.
    ///
    /// Up to six operands are contracted in the order with the fewest multiplications. With more,
    /// each step contracts the cheapest pair among the first sixteen.
    ///
    /// # Errors
    /// Fails for an invalid equation, or for one that does not fit the operands. Also fails if one
    /// letter has different sizes, or if dtypes differ.
    pub fn einsum(equation: &str, operands: &[&Self]) -> RusTorchResult<Self> {
        let (inputs, output) = parse(equation, operands)?;
        let mut sizes = Sizes::new();
        for (operand, labels) in operands.iter().zip(&inputs) {
            for (&label, &size) in labels.iter().zip(operand.shape()) {
                let known = sizes.entry(label).or_insert(size);
                if *known != size && *known != 1 && size != 1 {
                    let expected = format_args!("one size of {label} in {equation:?}");
                    return Err(OpError::new(NAME, expected, format!("{known} and {size}")).into());
                }
                *known = (*known).max(size);
                if size == 0 {
                    *known = 0;
                }
            }
        }
        let mut named = (operands.iter().zip(&inputs))
            .map(|(tensor, labels)| diagonal(tensor, labels))
            .collect::<RusTorchResult<Vec<Named>>>()?;
        let mut uses = Uses::of(&named, &output);
        for (i, j) in order(&named, &output, &sizes) {
            let (b, a) = (named.remove(j), named.remove(i));
            uses.remove(&a.labels);
            uses.remove(&b.labels);
            let pair = contract(a, b, &uses.labels(), &sizes)?;
            uses.add(&pair.labels);
            named.insert(i, pair);
        }
        let whole = sum_all_but(named.remove(0), &output)?;
        arrange(&whole, &output, &sizes)
    }
}

/// The names of each operand's dimensions, and of the result's.
fn parse(equation: &str, operands: &[&Tensor]) -> RusTorchResult<(Vec<Vec<Label>>, Vec<Label>)> {
    let wrong = |expected: &str| OpError::new(NAME, expected, format!("{equation:?}"));
    let (left, right) = match equation.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (equation, None),
    };
    let terms: Vec<&str> = left.split(',').collect();
    if terms.len() != operands.len() {
        let expected = format!("an equation of {} operands", operands.len());
        return Err(wrong(&expected).into());
    }
    let mut inputs = Vec::new();
    let mut dots = 0;
    for (term, operand) in terms.iter().zip(operands) {
        let letters = term.chars().filter(|c| c.is_ascii_alphabetic()).count();
        let hidden = operand.rank().checked_sub(letters);
        let hidden = hidden.filter(|&hidden| hidden == 0 || term.contains("..."));
        let Some(hidden) = hidden else {
            let expected = format!("a name for each dimension of {}", operand.ty());
            return Err(wrong(&expected).into());
        };
        dots = dots.max(hidden);
        inputs.push(labels(term, hidden).ok_or_else(|| wrong("letters, and ... once in a term"))?);
    }
    let output = match right {
        Some(right) => {
            let output =
                labels(right, dots).ok_or_else(|| wrong("letters, and ... once in a term"))?;
            let is_known = |label: &Label| inputs.iter().flatten().any(|l| l == label);
            let once = (1..output.len()).all(|i| !output[..i].contains(&output[i]));
            if !once || !output.iter().all(is_known) {
                return Err(wrong("names of the operands, each once, after ->").into());
            }
            output
        }
        None => {
            let mut uses = Uses::default();
            inputs.iter().for_each(|labels| uses.add(labels));
            let is_alone = |label: &Label| matches!(label, Label::Letter(_)) && uses.0[label] == 1;
            let letters = uses.0.keys().copied().filter(is_alone);
            (0..dots).rev().map(Label::Dots).chain(letters).collect()
        }
    };
    Ok((inputs, output))
}

/// The names in a term whose `...` stands for `hidden` dimensions.
fn labels(term: &str, hidden: usize) -> Option<Vec<Label>> {
    let letters = |text: &str| -> Option<Vec<Label>> {
        let label = |c: char| c.is_ascii_alphabetic().then_some(Label::Letter(c));
        text.chars().filter(|c| *c != ' ').map(label).collect()
    };
    match term.split_once("...") {
        None => letters(term),
        Some((before, behind)) => {
            let dots = (0..hidden).rev().map(Label::Dots);
            let before = letters(before)?.into_iter();
            Some(before.chain(dots).chain(letters(behind)?).collect())
        }
    }
}

/// The tensor with each name once: of one that comes again the diagonal.
fn diagonal(tensor: &Tensor, names: &[Label]) -> RusTorchResult<Named> {
    let (mut tensor, mut labels) = (tensor.clone(), names.to_vec());
    while let Some((i, j)) = repeated(&labels) {
        let (a, b) = (tensor.shape()[i], tensor.shape()[j]);
        if a != b {
            let expected = format_args!("one size of {}", labels[i]);
            return Err(OpError::new(NAME, expected, format!("{a} and {b}")).into());
        }
        let others = (0..tensor.rank()).filter(|&d| d != i && d != j);
        let label = labels[i];
        labels = others.map(|d| labels[d]).chain([label]).collect();
        tensor = tensor.diagonal(0, i as isize, j as isize)?;
    }
    Ok(Named { tensor, labels })
}

fn repeated(labels: &[Label]) -> Option<(usize, usize)> {
    (1..labels.len())
        .find_map(|j| (labels[..j].iter().position(|l| *l == labels[j])).map(|i| (i, j)))
}

/// Number of uses of each name, by operands and the result.
#[derive(Default)]
struct Uses(BTreeMap<Label, usize>);

impl Uses {
    fn of(operands: &[Named], output: &[Label]) -> Self {
        let mut uses = Self::default();
        operands.iter().for_each(|x| uses.add(&x.labels));
        uses.add(output);
        uses
    }

    fn add(&mut self, labels: &[Label]) {
        for label in labels {
            *self.0.entry(*label).or_default() += 1;
        }
    }

    fn remove(&mut self, labels: &[Label]) {
        for label in labels {
            self.0.entry(*label).and_modify(|count| *count -= 1);
        }
    }

    /// The names that are used.
    fn labels(&self) -> Vec<Label> {
        let used = self.0.iter().filter(|&(_, &count)| count > 0);
        used.map(|(label, _)| *label).collect()
    }
}

/// Operands beyond which all orders are not compared.
const COMPARED: usize = 6;

/// Operands among which the next pair is looked for, so that the time grows as their number does.
const LOOKED_AT: usize = 16;

/// Pairs of places in the list, the first before the second, whose contraction takes the first one's
/// place.
fn order(named: &[Named], output: &[Label], sizes: &Sizes) -> Vec<(usize, usize)> {
    let mut uses = Uses::of(named, output);
    let mut behind = named.iter().map(|x| x.labels.clone());
    let mut labels: Vec<Vec<Label>> = behind.by_ref().take(LOOKED_AT).collect();
    let mut pairs = Vec::new();
    while labels.len() > COMPARED {
        let all = all_pairs(labels.len());
        let cost = |&(i, j): &(usize, usize)| product(&joined(&labels[i], &labels[j]), sizes);
        let best = all.min_by(|a, b| cost(a).total_cmp(&cost(b)));
        let Some((i, j)) = best else { break };
        let (b, a) = (labels.remove(j), labels.remove(i));
        uses.remove(&a);
        uses.remove(&b);
        let mut pair = joined(&a, &b);
        pair.retain(|label| uses.0[label] > 0);
        uses.add(&pair);
        labels.insert(i, pair);
        labels.extend(behind.next());
        pairs.push((i, j));
    }
    pairs.extend(cheapest(&labels, output, sizes).1);
    pairs
}

fn all_pairs(count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count).flat_map(move |i| (i + 1..count).map(move |j| (i, j)))
}

/// The order of the fewest multiplications, and how many those are.
fn cheapest(labels: &[Vec<Label>], output: &[Label], sizes: &Sizes) -> (f64, Vec<(usize, usize)>) {
    let mut best = (f64::INFINITY, Vec::new());
    if labels.len() < 2 {
        return (0.0, Vec::new());
    }
    for (i, j) in all_pairs(labels.len()) {
        let first = product(&joined(&labels[i], &labels[j]), sizes);
        if first >= best.0 {
            continue;
        }
        let (rest, mut pairs) = cheapest(&contracted(labels, (i, j), output), output, sizes);
        if first + rest < best.0 || best.1.is_empty() {
            pairs.insert(0, (i, j));
            best = (first + rest, pairs);
        }
    }
    best
}

/// The names of all operands after a pair was contracted.
fn contracted(labels: &[Vec<Label>], (i, j): (usize, usize), output: &[Label]) -> Vec<Vec<Label>> {
    let mut rest = labels.to_vec();
    let (b, a) = (rest.remove(j), rest.remove(i));
    let mut pair = joined(&a, &b);
    pair.retain(|label| output.contains(label) || rest.iter().flatten().any(|l| l == label));
    rest.insert(i, pair);
    rest
}

fn joined(a: &[Label], b: &[Label]) -> Vec<Label> {
    let new = b.iter().filter(|label| !a.contains(label));
    a.iter().chain(new).copied().collect()
}

fn product(labels: &[Label], sizes: &Sizes) -> f64 {
    labels.iter().map(|label| sizes[label] as f64).product()
}

/// Sums over the dimensions whose names are not `kept`.
fn sum_all_but(x: Named, kept: &[Label]) -> RusTorchResult<Named> {
    let gone = |label: &Label| !kept.contains(label);
    let dims: Vec<isize> = (x.labels.iter().enumerate())
        .filter(|(_, label)| gone(label))
        .map(|(d, _)| d as isize)
        .collect();
    if dims.is_empty() {
        return Ok(x);
    }
    let tensor = x.tensor.sum(&dims[..], false)?;
    let labels = x.labels.into_iter().filter(|label| !gone(label)).collect();
    Ok(Named { tensor, labels })
}

/// The tensor's dimensions in this order, those that it lacks having size 1, and with their full
/// sizes.
fn arrange(x: &Named, labels: &[Label], sizes: &Sizes) -> RusTorchResult<Tensor> {
    let place = |label: &Label| x.labels.iter().position(|l| l == label);
    let order: Vec<isize> = labels
        .iter()
        .filter_map(place)
        .map(|d| d as isize)
        .collect();
    let moved = x.tensor.permute(&order)?;
    let size = |label: &Label| place(label).map_or(1, |d| x.tensor.shape()[d]);
    let shape: Vec<usize> = labels.iter().map(size).collect();
    let full: Vec<usize> = labels.iter().map(|label| sizes[label]).collect();
    moved.reshape(&shape[..])?.expand(&full[..])
}

/// A matrix product of two operands: names that are in both and kept are its batch, those in both that
/// are not are summed over.
fn contract(a: Named, b: Named, kept: &[Label], sizes: &Sizes) -> RusTorchResult<Named> {
    let of = |other: &[Label]| -> Vec<Label> { kept.iter().chain(other).copied().collect() };
    let mut a = sum_all_but(a, &of(&b.labels))?;
    let mut b = sum_all_but(b, &of(&a.labels))?;
    // Sums of integers are of `i64`.
    let dtype = result_dtype(NAME, &[(&a.tensor).into(), (&b.tensor).into()])?;
    for x in [&mut a, &mut b] {
        x.tensor = x.tensor.cast(NAME, dtype)?;
    }
    let split = |x: &[Label], test: &dyn Fn(&Label) -> bool| -> Vec<Label> {
        x.iter().copied().filter(|label| test(label)).collect()
    };
    let both = |label: &Label| b.labels.contains(label);
    let batch = split(&a.labels, &|label| both(label) && kept.contains(label));
    let inner = split(&a.labels, &|label| both(label) && !kept.contains(label));
    let rows = split(&a.labels, &|label| !both(label));
    let columns = split(&b.labels, &|label| !a.labels.contains(label));
    let size = |labels: &[Label]| labels.iter().map(|label| sizes[label]).product::<usize>();
    let shape = |x: &[Label], y: &[Label]| [size(&batch), size(x), size(y)];
    let left = arrange(&a, &[&batch[..], &rows, &inner].concat(), sizes)?;
    let right = arrange(&b, &[&batch[..], &inner, &columns].concat(), sizes)?;
    let product = left
        .reshape(shape(&rows, &inner))?
        .matmul(&right.reshape(shape(&inner, &columns))?)?;
    let labels = [&batch[..], &rows, &columns].concat();
    let full: Vec<usize> = labels.iter().map(|label| sizes[label]).collect();
    let tensor = product.reshape(&full[..])?;
    Ok(Named { tensor, labels })
}
