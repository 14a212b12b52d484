//! Products and factors of matrices.

table! {
    "bmm", "input, mat2", |c| c.input()?.bmm(c.tensor("mat2")?)?;
    "dot", "input, tensor", |c| c.input()?.dot(c.tensor("tensor")?)?;
    "linalg.vector_norm", "input, ord=2, dim=None, keepdim=False, *, dtype=None", |c| {
        c.input_as("dtype")?.norm(c.float("ord")?, c.dims_or_all("dim")?, c.bool("keepdim")?)?
    };
    "matmul", "input, other", |c| c.input()?.matmul(c.tensor("other")?)?;
    "mm", "input, mat2", |c| c.input()?.mm(c.tensor("mat2")?)?;
    "mv", "input, vec", |c| c.input()?.mv(c.tensor("vec")?)?;
    "norm", "input, p=2, dim=None, keepdim=False, *, dtype=None", |c| {
        c.input_as("dtype")?.norm(c.float("p")?, c.dims_or_all("dim")?, c.bool("keepdim")?)?
    };
    "__rmatmul__", "input, other", |c| c.tensor("other")?.matmul(c.input()?)?;
}
