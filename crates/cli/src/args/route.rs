//! The value of `--route`: an operation and its device.

use std::str::FromStr;

use rustorch_ir::OpKind;
use rustorch_runtime::DeviceType;

/// An operation that goes to its own device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteArg {
    pub(crate) op: OpKind,
    pub(crate) device: DeviceType,
}

/// The operation of this name.
pub(crate) fn operation(name: &str) -> Result<OpKind, String> {
    let known = OpKind::ALL.iter().find(|kind| kind.name() == name);
    known.copied().ok_or_else(|| {
        let names: Vec<&str> = OpKind::ALL.iter().map(|kind| kind.name()).collect();
        format!(
            "unknown operation {name:?}; expected one of {}",
            names.join(", ")
        )
    })
}

impl FromStr for RouteArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (op, device) = text
            .split_once('=')
            .ok_or("expected an operation and a device, such as attention=cpu")?;
        let op = operation(op)?;
        let device = device.parse::<DeviceType>().map_err(|e| e.to_string())?;
        Ok(Self { op, device })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_and_a_device() {
        let route: RouteArg = "attention=opencl:1".parse().unwrap();
        assert_eq!(route.op.name(), "attention");
        assert_eq!(route.device, DeviceType::OpenCL(1));
        for (bad, why) in [
            ("attention", "expected"),
            ("attend=cpu", "\"attend\"; expected one of"),
            ("attention=gpu", "unknown device \"gpu\""),
        ] {
            let error = bad.parse::<RouteArg>().unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
