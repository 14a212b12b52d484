//! Launches as a CUDA graph.

use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::*;

use crate::context::Context;
use crate::status::{Failure, check};

/// Launches that are repeated at once.
pub struct Recording {
    context: Arc<Context>,
    graph: CUgraphExec,
}

// SAFETY: one thread at a time uses it, with its context current.
unsafe impl Send for Recording {}

impl Recording {
    /// Takes the graph over.
    pub(crate) fn new(context: &Arc<Context>, graph: CUgraph) -> Result<Self, Failure> {
        let mut instance = ptr::null_mut();
        // SAFETY: the graph is valid, and there is room for the instance.
        let status = unsafe { cuGraphInstantiateWithFlags(&raw mut instance, graph, 0) };
        // SAFETY: it is valid, and not used again.
        unsafe { cuGraphDestroy(graph) };
        check("cuGraphInstantiate", status)?;
        Ok(Self {
            context: context.clone(),
            graph: instance,
        })
    }

    pub(crate) fn launch(&self) -> Result<(), Failure> {
        self.context.enter()?;
        // SAFETY: the instance is valid, and of the stream's context.
        check("cuGraphLaunch", unsafe {
            cuGraphLaunch(self.graph, self.context.main_stream())
        })
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: it is valid, and not used again; the driver waits for it by itself.
            unsafe { cuGraphExecDestroy(self.graph) };
        }
    }
}
