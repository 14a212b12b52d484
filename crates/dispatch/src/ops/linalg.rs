//! Products and factors of matrices.

use rustorch_tensor::Tensor;
use rustorch_tensor::linalg::{self, MatrixNorm, QrMode, Tolerance};

use crate::call::{Call, Called, CallError, missing};
use crate::value::{Output, Value};

table! {
    "addbmm", "input, batch1, batch2, *, beta=1, alpha=1", |c| {
        c.input()?.addbmm(c.tensor("batch1")?, c.tensor("batch2")?, c.scalar("beta")?, c.scalar("alpha")?)?
    };
    "addmm", "input, mat1, mat2, *, beta=1, alpha=1", |c| {
        c.input()?.addmm(c.tensor("mat1")?, c.tensor("mat2")?, c.scalar("beta")?, c.scalar("alpha")?)?
    };
    "addmv", "input, mat, vec, *, beta=1, alpha=1", |c| {
        c.input()?.addmv(c.tensor("mat")?, c.tensor("vec")?, c.scalar("beta")?, c.scalar("alpha")?)?
    };
    "addr", "input, vec1, vec2, *, beta=1, alpha=1", |c| {
        c.input()?.addr(c.tensor("vec1")?, c.tensor("vec2")?, c.scalar("beta")?, c.scalar("alpha")?)?
    };
    "baddbmm", "input, batch1, batch2, *, beta=1, alpha=1", |c| {
        c.input()?.baddbmm(c.tensor("batch1")?, c.tensor("batch2")?, c.scalar("beta")?, c.scalar("alpha")?)?
    };
    "bmm", "input, mat2", |c| c.input()?.bmm(c.tensor("mat2")?)?;
    "cholesky", "input, upper=False", |c| linalg::cholesky(c.input()?, c.bool("upper")?)?;
    "cholesky_inverse", "input, upper=False", |c| c.input()?.cholesky_inverse(c.bool("upper")?)?;
    "cholesky_solve", "input, input2, upper=False", |c| {
        c.input()?.cholesky_solve(c.tensor("input2")?, c.bool("upper")?)?
    };
    "cross", "input, other, dim=None", |c| {
        let sizes = c.input()?.shape();
        let first = || sizes.iter().position(|&size| size == 3).unwrap_or(0) as isize;
        let dim = c.maybe_int("dim")?.unwrap_or_else(first);
        c.input()?.cross(c.tensor("other")?, dim)?
    };
    "dot", "input, tensor", |c| c.input()?.dot(c.tensor("tensor")?)?;
    "einsum", "operands, equation", |c| {
        Tensor::einsum(c.text("equation")?, &c.tensors("operands")?)?
    };
    "geqrf", "input", |c| c.input()?.geqrf()?;
    "inner", "input, other", |c| c.input()?.inner(c.tensor("other")?)?;
    "kron", "input, other", |c| c.input()?.kron(c.tensor("other")?)?;
    "linalg.cholesky", "A, *, upper=False", |c| linalg::cholesky(c.input()?, c.bool("upper")?)?;
    "linalg.cholesky_ex", "A, *, upper=False, check_errors=False", |c| {
        linalg::cholesky_ex(c.input()?, c.bool("upper")?, c.bool("check_errors")?)?
    };
    "linalg.cond", "A, p=None", |c| match c.has("p") {
        true => linalg::cond(c.input()?, matrix_norm(c, "p")?)?,
        false => linalg::cond(c.input()?, MatrixNorm::P(2.0))?,
    };
    "linalg.cross", "input, other, *, dim=-1", |c| {
        c.input()?.cross(c.tensor("other")?, c.int::<isize>("dim")?)?
    };
    "linalg.det", "A", |c| linalg::det(c.input()?)?;
    "linalg.eig", "A", |c| linalg::eig(c.input()?)?;
    "linalg.eigh", "A, UPLO='L'", |c| linalg::eigh(c.input()?, is_upper(c)?)?;
    "linalg.eigvals", "A", |c| linalg::eigvals(c.input()?)?;
    "linalg.eigvalsh", "A, UPLO='L'", |c| linalg::eigvalsh(c.input()?, is_upper(c)?)?;
    "linalg.householder_product", "A, tau", |c| {
        linalg::householder_product(c.input()?, c.tensor("tau")?)?
    };
    "linalg.inv", "A", |c| linalg::inv(c.input()?)?;
    "linalg.inv_ex", "A, *, check_errors=False", |c| {
        linalg::inv_ex(c.input()?, c.bool("check_errors")?)?
    };
    "linalg.lstsq", "A, B, rcond=None, *, driver=None", |c| least_squares(c)?;
    "linalg.lstsq.grad_oriented", "A, B, rcond=None, *, driver=None", |c| {
        let found = linalg::lstsq_with(c.input()?, c.tensor("B")?, &tolerance(c)?)?;
        let residuals = match driver(c)? {
            "gelsy" => Tensor::zeros([0], found.residuals.dtype())?,
            _ => found.residuals,
        };
        (found.solution, residuals)
    };
    "linalg.lu", "A, *, pivot=True", |c| {
        c.only("pivot", "True")?;
        linalg::lu(c.input()?)?
    };
    "linalg.ldl_factor", "A, *, hermitian=False", |c| {
        linalg::ldl_factor(c.input()?, c.bool("hermitian")?)?
    };
    "linalg.ldl_factor_ex", "A, *, hermitian=False, check_errors=False", |c| {
        linalg::ldl_factor_ex(c.input()?, c.bool("hermitian")?, c.bool("check_errors")?)?
    };
    "linalg.ldl_solve", "LD, pivots, B, *, hermitian=False", |c| {
        let (pivots, b) = (c.tensor("pivots")?, c.tensor("B")?);
        linalg::ldl_solve(c.input()?, pivots, b, c.bool("hermitian")?)?
    };
    "linalg.lu_factor", "A, *, pivot=True", |c| {
        c.only("pivot", "True")?;
        linalg::lu_factor(c.input()?)?
    };
    "linalg.lu_factor_ex", "A, *, pivot=True, check_errors=False", |c| {
        c.only("pivot", "True")?;
        linalg::lu_factor_ex(c.input()?, c.bool("check_errors")?)?
    };
    "linalg.lu_solve", "LU, pivots, B, *, left=True, adjoint=False", |c| {
        let (pivots, b) = (c.tensor("pivots")?, c.tensor("B")?);
        linalg::lu_solve(c.input()?, pivots, b, c.bool("left")?, c.bool("adjoint")?)?
    };
    "linalg.matrix_norm", "A, ord='fro', dim=None, keepdim=False, *, dtype=None", |c| {
        let dims = c.has("dim").then(|| c.ints::<isize>("dim")).transpose()?;
        let Ok(dims) = <[isize; 2]>::try_from(dims.unwrap_or(vec![-2, -1])) else {
            return Err(CallError::Untyped("other than two dimensions".to_owned()));
        };
        linalg::matrix_norm(&c.input_as("dtype")?, matrix_norm(c, "ord")?, dims, c.bool("keepdim")?)?
    };
    "linalg.matrix_power", "A, n", |c| linalg::matrix_power(c.input()?, c.int("n")?)?;
    "linalg.matrix_rank", "A, tol=None, hermitian=False, *, atol=None, rtol=None", |c| {
        let tolerance = tolerance(c)?;
        match c.bool("hermitian")? {
            true => linalg::matrix_rank_hermitian(c.input()?, &tolerance)?,
            false => linalg::matrix_rank(c.input()?, &tolerance)?,
        }
    };
    "linalg.multi_dot", "tensors", |c| linalg::multi_dot(&c.tensors("tensors")?)?;
    "linalg.norm", "A, ord=None, dim=None, keepdim=False, *, dtype=None", |c| {
        let ord = if c.has("ord") { Some(matrix_norm(c, "ord")?) } else { None };
        linalg::norm(&c.input_as("dtype")?, ord, c.dims("dim")?, c.bool("keepdim")?)?
    };
    "linalg.pinv", "A, rcond=None, hermitian=False, *, atol=None, rtol=None", |c| {
        let tolerance = tolerance(c)?;
        match c.bool("hermitian")? {
            true => linalg::pinv_hermitian(c.input()?, &tolerance)?,
            false => linalg::pinv(c.input()?, &tolerance)?,
        }
    };
    "linalg.pinv.singular", "a, b", |c| {
        let (a, b) = (c.input()?, c.tensor("b")?);
        linalg::pinv(&a.matmul(&b.transpose(-2, -1)?)?, &Tolerance::default())?
    };
    "linalg.qr", "A, mode='reduced'", |c| linalg::qr(c.input()?, match c.text("mode")? {
        "reduced" => QrMode::Reduced,
        "complete" => QrMode::Complete,
        "r" => QrMode::R,
        other => return Err(CallError::Untyped(format!("mode={other}"))),
    })?;
    "linalg.matrix_sqrth", "A", |c| linalg::matrix_sqrth(c.input()?)?;
    "linalg.polar", "A", |c| linalg::polar(c.input()?)?;
    "linalg.slogdet", "A", |c| linalg::slogdet(c.input()?)?;
    "linalg.solve", "A, B, *, left=True", |c| {
        linalg::solve(c.input()?, c.tensor("B")?, c.bool("left")?)?
    };
    "linalg.solve_ex", "A, B, *, left=True, check_errors=False", |c| {
        linalg::solve_ex(c.input()?, c.tensor("B")?, c.bool("left")?, c.bool("check_errors")?)?
    };
    "linalg.solve_triangular", "A, B, *, upper, left=True, unitriangular=False", |c| {
        let (a, b, upper) = (c.input()?, c.tensor("B")?, c.bool("upper")?);
        linalg::solve_triangular(a, b, upper, c.bool("left")?, c.bool("unitriangular")?)?
    };
    "linalg.svd", "A, full_matrices=True, *, driver=None", |c| {
        linalg::svd(c.input()?, c.bool("full_matrices")?)?
    };
    "linalg.svdvals", "A, *, driver=None", |c| linalg::svdvals(c.input()?)?;
    "linalg.tensorinv", "A, ind=2", |c| linalg::tensorinv(c.input()?, c.int("ind")?)?;
    "linalg.tensorsolve", "A, B, dims=None", |c| {
        let dims = c.has("dims").then(|| c.ints::<isize>("dims")).transpose()?;
        linalg::tensorsolve(c.input()?, c.tensor("B")?, dims.as_deref())?
    };
    "linalg.vecdot", "x, y, *, dim=-1", |c| {
        linalg::vecdot(c.input()?, c.tensor("y")?, c.int::<isize>("dim")?)?
    };
    "linalg.vector_norm", "input, ord=2, dim=None, keepdim=False, *, dtype=None", |c| {
        let x = c.input_as("dtype")?;
        linalg::vector_norm(&x, c.float("ord")?, c.dims_or_all("dim")?, c.bool("keepdim")?)?
    };
    "logdet", "input", |c| c.input()?.logdet()?;
    "lu", "A, pivot=True, get_infos=False", |c| {
        c.only("pivot", "True")?;
        let (lu, pivots, info) = linalg::lu_factor_ex(c.input()?, false)?;
        match c.bool("get_infos")? {
            true => Output::from((lu, pivots, info)),
            false => Output::from((lu, pivots)),
        }
    };
    "lu_solve", "input, LU_data, LU_pivots", |c| {
        c.input()?.lu_solve(c.tensor("LU_data")?, c.tensor("LU_pivots")?)?
    };
    "lu_unpack", "LU_data, LU_pivots, unpack_data=True, unpack_pivots=True", |c| {
        let (p, l, u) = c.input()?.lu_unpack(c.tensor("LU_pivots")?)?;
        let empty = Tensor::zeros([0], c.input()?.dtype())?;
        let [data, pivots] = [c.bool("unpack_data")?, c.bool("unpack_pivots")?];
        let chosen = |x: Tensor, wanted: bool| if wanted { x } else { empty.clone() };
        (chosen(p, pivots), chosen(l, data), chosen(u, data))
    };
    "matmul", "input, other", |c| c.input()?.matmul(c.tensor("other")?)?;
    "matrix_exp", "input", |c| linalg::matrix_exp(c.input()?)?;
    "mm", "input, mat2", |c| c.input()?.mm(c.tensor("mat2")?)?;
    "mv", "input, vec", |c| c.input()?.mv(c.tensor("vec")?)?;
    "norm", "input, p=2, dim=None, keepdim=False, *, dtype=None", |c| {
        c.input_as("dtype")?.norm(c.float("p")?, c.dims_or_all("dim")?, c.bool("keepdim")?)?
    };
    "norm.nuc", "input, p, dim=None, keepdim=False, *, dtype=None", |c| by_name(c)?;
    "norm.fro", "input, p='fro', dim=None, keepdim=False, *, dtype=None", |c| by_name(c)?;
    "ormqr", "input, tau, other, left=True, transpose=False", |c| {
        let (tau, other) = (c.tensor("tau")?, c.tensor("other")?);
        c.input()?.ormqr(tau, other, c.bool("left")?, c.bool("transpose")?)?
    };
    "outer", "input, vec2", |c| c.input()?.outer(c.tensor("vec2")?)?;
    // PyTorch's tests give the factors of what is decomposed.
    "pca_lowrank", "a, b, *, q=6, center=True, niter=2", |c| {
        let a = c.input()?.matmul(&c.tensor("b")?.transpose(-2, -1)?)?;
        a.pca_lowrank(c.int("q")?, c.bool("center")?, c.int("niter")?)?
    };
    "pinverse", "input, rcond=1e-15", |c| c.input()?.pinverse(c.float("rcond")?)?;
    "qr", "input, some=True", |c| linalg::qr(c.input()?, match c.bool("some")? {
        true => QrMode::Reduced,
        false => QrMode::Complete,
    })?;
    "renorm", "input, p, dim, maxnorm", |c| {
        c.input()?.renorm(c.float("p")?, c.int::<isize>("dim")?, c.float("maxnorm")?)?
    };
    "svd", "input, some=True, compute_uv=True", |c| {
        c.only("compute_uv", "True")?;
        c.input()?.svd(c.bool("some")?)?
    };
    "svd_lowrank", "a, b, *, q=6, niter=2, M=None", |c| {
        let a = c.input()?.matmul(&c.tensor("b")?.transpose(-2, -1)?)?;
        a.svd_lowrank(c.int("q")?, c.int("niter")?, c.optional("M")?)?
    };
    "tensordot", "a, b, dims=2", |c| {
        let (a, b) = (c.input()?, c.tensor("b")?);
        match c.value("dims")?.parts() {
            Some([first, second]) => a.tensordot(b, &dims(first)?, &dims(second)?)?,
            Some(_) => return missing("other than two lists of dimensions"),
            None => {
                let count = c.int::<usize>("dims")? as isize;
                let last: Vec<isize> = (-count..0).collect();
                let first: Vec<isize> = (0..count).collect();
                a.tensordot(b, &last, &first)?
            }
        }
    };
    "triangular_solve", "input, A, upper=True, transpose=False, unitriangular=False", |c| {
        let (a, upper) = (c.tensor("A")?, c.bool("upper")?);
        c.input()?.triangular_solve(a, upper, c.bool("transpose")?, c.bool("unitriangular")?)?
    };
    "vdot", "input, other", |c| c.input()?.vdot(c.tensor("other")?)?;
    "__rmatmul__", "input, other", |c| c.tensor("other")?.matmul(c.input()?)?;
}

fn dims(value: &Value) -> Called<Vec<isize>> {
    let one = std::slice::from_ref(value);
    let int = |value: &Value| match value {
        Value::Int(x) => Ok(*x as isize),
        other => missing(format!("dimension {other}")),
    };
    value.parts().unwrap_or(one).iter().map(int).collect()
}

fn is_upper(c: &Call) -> Called<bool> {
    match c.text("UPLO")? {
        "U" | "u" => Ok(true),
        "L" | "l" => Ok(false),
        other => Err(CallError::Untyped(format!("UPLO={other}"))),
    }
}

fn matrix_norm(c: &Call, name: &str) -> Called<MatrixNorm> {
    match c.value(name)? {
        Value::Text(text) => match text.as_str() {
            "fro" => Ok(MatrixNorm::Frobenius),
            "nuc" => Ok(MatrixNorm::Nuclear),
            other => Err(CallError::Untyped(format!("{name}={other}"))),
        },
        _ => Ok(MatrixNorm::P(c.float(name)?)),
    }
}

fn tolerance(c: &Call) -> Called<Tolerance> {
    let real = c.input()?.dtype().real();
    let given = |name: &str| -> Called<Option<Tensor>> {
        match c.value(name) {
        Err(_) | Ok(Value::None) => Ok(None),
        Ok(Value::Tensor(x)) => Ok(Some(x.clone())),
        Ok(_) => Ok(Some(Tensor::scalar(c.float(name)?, real)?)),
    }};
    Ok(Tolerance {
        // The older names of the two: `tol` is absolute, `rcond` relative.
        atol: given("atol")?.or(given("tol")?),
        rtol: given("rtol")?.or(given("rcond")?),
    })
}

/// One of LAPACK's drivers, by itself that which PyTorch takes.
fn driver(c: &Call) -> Called<&str> {
    match if c.has("driver") { c.text("driver")? } else { "gelsy" } {
        driver @ ("gels" | "gelsy" | "gelsd" | "gelss") => Ok(driver),
        other => Err(CallError::Untyped(format!("driver={other}"))),
    }
}

fn least_squares(c: &Call) -> Called<Output> {
    let driver = driver(c)?;
    let (a, b) = (c.input()?, c.tensor("B")?);
    let found = linalg::lstsq_with(a, b, &tolerance(c)?)?;
    let empty = |dtype| Tensor::zeros([0], dtype);
    // PyTorch returns an empty tensor for a result that the LAPACK driver does not compute.
    let rank = match driver {
        "gels" => empty(rustorch_ir::DType::I64)?,
        _ => found.rank,
    };
    let values = match driver {
        "gelsd" | "gelss" => found.singular_values,
        _ => empty(found.singular_values.dtype())?,
    };
    let residuals = match driver {
        "gelsy" => empty(found.residuals.dtype())?,
        _ => found.residuals,
    };
    Ok(Output::from(vec![found.solution, residuals, rank, values]))
}

/// `torch.norm` of a named norm.
fn by_name(c: &Call) -> Called<Tensor> {
    let x = c.input_as("dtype")?;
    let keepdim = c.bool("keepdim")?;
    match c.text("p")? {
        "fro" => Ok(x.norm(2.0, c.dims_or_all("dim")?, keepdim)?),
        "nuc" => {
            let dims = c.has("dim").then(|| c.ints::<isize>("dim")).transpose()?;
            let Ok(dims) = <[isize; 2]>::try_from(dims.unwrap_or(vec![-2, -1])) else {
                return missing("other than two dimensions");
            };
            Ok(linalg::matrix_norm(&x, MatrixNorm::Nuclear, dims, keepdim)?)
        }
        other => Err(CallError::Untyped(format!("p={other}"))),
    }
}
