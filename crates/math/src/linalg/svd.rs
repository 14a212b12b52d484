//! Singular values.

use faer::linalg::solvers;

use super::{NoConvergence, Number, Svd, Vectors, elements, matrix, phase, range};

pub(crate) fn svd<T: Number>(
    a: &[T],
    m: usize,
    n: usize,
    vectors: Vectors,
) -> Result<Svd<T>, NoConvergence> {
    if !a.iter().all(T::is_finite_impl) {
        return Err(NoConvergence);
    }
    let mut a = a.to_vec();
    let back = range::tame(&mut a);
    let a = matrix(&a, m, n);
    let found = match vectors {
        Vectors::No => {
            let mut s = a.singular_values().map_err(|_| NoConvergence)?;
            range::scale(&mut s, back);
            let (u, vh) = (Vec::new(), Vec::new());
            return Ok(Svd { u, s, vh });
        }
        Vectors::Reduced => solvers::Svd::new_thin(a),
        Vectors::Full => solvers::Svd::new(a),
    };
    let found = found.map_err(|_| NoConvergence)?;
    let mut s = found
        .S()
        .column_vector()
        .iter()
        .map(T::real_part_impl)
        .collect::<Vec<_>>();
    range::scale(&mut s, back);
    let mut u = elements(found.U());
    let mut vh = elements(found.V().transpose());
    vh.iter_mut().for_each(|x| *x = T::conj_impl(x));
    let columns = found.U().ncols();
    for i in 0..s.len() {
        let back = phase::factor(u.iter().skip(i).step_by(columns).copied());
        u.iter_mut()
            .skip(i)
            .step_by(columns)
            .for_each(|x| *x *= back);
        vh[i * n..][..n]
            .iter_mut()
            .for_each(|x| *x *= T::conj_impl(&back));
    }
    Ok(Svd { u, s, vh })
}
