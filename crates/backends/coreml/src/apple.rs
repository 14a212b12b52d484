//! Core ML itself: each call as it is, and nothing else, because only an Apple system can run it.

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use block2::RcBlock;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::{AnyObject, NSObjectProtocol, ProtocolObject};
use objc2::{AnyThread, ClassType, available, msg_send};
use objc2_core_foundation::{CFDictionary, CFRetained, CFString, CFType};
use objc2_core_ml::{
    MLCPUComputeDevice, MLComputeDeviceProtocol, MLComputePlan, MLComputeUnits,
    MLDictionaryFeatureProvider, MLFeatureProvider, MLFeatureValue, MLGPUComputeDevice, MLModel,
    MLModelConfiguration, MLMultiArray, MLMultiArrayDataType, MLNeuralEngineComputeDevice,
    MLPredictionOptions, MLState,
};
use objc2_core_video::{
    CVPixelBuffer, CVPixelBufferCreate, kCVPixelBufferIOSurfacePropertiesKey,
    kCVPixelFormatType_OneComponent16Half, kCVReturnSuccess,
};
use objc2_foundation::{
    NSArray, NSDictionary, NSError, NSFileManager, NSNumber, NSPOSIXErrorDomain, NSProcessInfo,
    NSString, NSURL, NSUnderlyingErrorKey,
};
use rustorch_runtime::{Compilation, HostBuffer};

use crate::api::{Api, ComputeUnit, ComputeUnits, ModelError, Output, Properties};
use crate::boundary::{gathered, scatter};
use crate::opset::Opset;
use crate::proto::model::ArrayDataType;

/// Cost of its compiler: a second or more, by reports from conversions of models. No single
/// operation is worth that.
const COMPILATION: Compilation = Compilation {
    program: Duration::from_secs(1),
    least_operations: 2,
};

/// The system's Core ML.
pub(crate) struct System {
    properties: Properties,
}

impl System {
    pub(crate) fn new() -> Self {
        autoreleasepool(|_| {
            let info = NSProcessInfo::processInfo();
            let version = info.operatingSystemVersion();
            let major = u32::try_from(version.majorVersion).unwrap_or_default();
            let (name, opset) = match cfg!(target_os = "macos") {
                true => ("macOS", Opset::of_macos(major)),
                false => ("iOS", Opset::of_ios(major)),
            };
            let processor = text_of_system(match cfg!(target_os = "macos") {
                true => c"machdep.cpu.brand_string",
                false => c"hw.machine",
            });
            let properties = Properties::new(
                processor.unwrap_or_else(|| "this machine".to_owned()),
                format!("{name} {}", info.operatingSystemVersionString()),
                opset,
                has_neural_engine(),
            );
            Self {
                properties: Properties {
                    compilation: Some(COMPILATION),
                    ..properties
                },
            }
        })
    }
}

/// Text of the kernel under a name.
fn text_of_system(name: &CStr) -> Option<String> {
    let mut bytes = [0_u8; 256];
    let mut length = bytes.len();
    let place = bytes.as_mut_ptr().cast();
    // SAFETY: the kernel writes `length` bytes at most, and how many they are to that.
    let failed =
        unsafe { libc::sysctlbyname(name.as_ptr(), place, &mut length, std::ptr::null_mut(), 0) };
    if failed != 0 {
        return None;
    }
    let text = CStr::from_bytes_until_nul(&bytes).ok()?;
    Some(text.to_string_lossy().into_owned())
}

fn has_neural_engine() -> Option<bool> {
    if !available!(macos = 14.0, ios = 17.0) {
        return None;
    }
    // SAFETY: the system has the property, which takes nothing.
    let devices = unsafe { MLModel::availableComputeDevices() };
    let is_engine = |device: Retained<_>| unit(&device) == Some(ComputeUnit::NeuralEngine);
    Some(devices.iter().any(is_engine))
}

/// Known unit of a device.
fn unit(device: &ProtocolObject<dyn MLComputeDeviceProtocol>) -> Option<ComputeUnit> {
    let classes = [
        (MLCPUComputeDevice::class(), ComputeUnit::Cpu),
        (MLGPUComputeDevice::class(), ComputeUnit::Gpu),
        (
            MLNeuralEngineComputeDevice::class(),
            ComputeUnit::NeuralEngine,
        ),
    ];
    let found = classes
        .into_iter()
        .find(|(class, _)| device.isKindOfClass(class));
    found.map(|(_, unit)| unit)
}

fn error(error: &NSError) -> ModelError {
    ModelError {
        code: error.code(),
        message: message(error),
        is_out_of_memory: is_out_of_memory(error),
    }
}

/// An error's text in one line, with the texts of its causes, which say more.
fn message(error: &NSError) -> String {
    let text = error.localizedDescription().to_string();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match cause(error).map(|cause| message(&cause)) {
        Some(cause) if !text.contains(&cause) => format!("{text}: {cause}"),
        _ => text,
    }
}

/// The error that an error comes from.
fn cause(error: &NSError) -> Option<Retained<NSError>> {
    // SAFETY: a constant of the system's, which is never changed.
    let underlying = unsafe { NSUnderlyingErrorKey };
    let cause = error.userInfo().objectForKey(underlying);
    cause?.downcast().ok()
}

/// Is this, or an error that it comes from, the system's refusal of memory?
fn is_out_of_memory(error: &NSError) -> bool {
    // SAFETY: a constant of the system's, which is never changed.
    let posix = unsafe { NSPOSIXErrorDomain };
    let refused = libc::ENOMEM as isize;
    let is_refusal = error.code() == refused && error.domain().isEqualToString(posix);
    is_refusal || cause(error).is_some_and(|cause| is_out_of_memory(&cause))
}

/// The error that a completion handler was given.
fn handed(given: *mut NSError) -> ModelError {
    // SAFETY: a handler is given a valid error or none.
    match unsafe { given.as_ref() } {
        Some(given) => error(given),
        None => ModelError::new(0, "no result, and no error"),
    }
}

fn url(path: &Path) -> Result<Retained<NSURL>, ModelError> {
    let url = NSURL::from_file_path(path);
    url.ok_or_else(|| ModelError::new(3, format!("{} is not a path of a file", path.display())))
}

fn configuration(units: ComputeUnits) -> Retained<MLModelConfiguration> {
    let units = match units {
        ComputeUnits::All => MLComputeUnits::All,
        ComputeUnits::CpuAndNeuralEngine => MLComputeUnits::CPUAndNeuralEngine,
        ComputeUnits::CpuAndGpu => MLComputeUnits::CPUAndGPU,
        ComputeUnits::CpuOnly => MLComputeUnits::CPUOnly,
    };
    // SAFETY: a new object, and one of the values of its property.
    unsafe {
        let configuration = MLModelConfiguration::new();
        configuration.setComputeUnits(units);
        configuration
    }
}

fn numbers(values: &[usize]) -> Retained<NSArray<NSNumber>> {
    let numbers: Vec<_> = values.iter().map(|&n| NSNumber::new_usize(n)).collect();
    NSArray::from_retained_slice(&numbers)
}

fn sizes(numbers: &NSArray<NSNumber>) -> Vec<usize> {
    numbers.iter().map(|n| n.as_usize()).collect()
}

/// Waits for a completion handler's result.
fn await_handler<T>(told: &Receiver<Result<T, ModelError>>) -> Result<T, ModelError> {
    let lost = |_| ModelError::new(0, "nothing was completed");
    told.recv().map_err(lost)?
}

/// `compileModelAtURL`: the URL of a temporary folder. It is the form that waits, as Apple's own coremltools
/// calls it on every system: there is a thread for it, and of macOS 12 there is no other.
fn compiled(package: &NSURL) -> Result<Retained<NSURL>, ModelError> {
    // SAFETY: the method is there from the first version on; it takes a URL and tells an error.
    let compiled: Result<Retained<NSURL>, Retained<NSError>> =
        unsafe { msg_send![MLModel::class(), compileModelAtURL: package, error: _] };
    compiled.map_err(|e| error(&e))
}

/// A loaded model.
pub(crate) struct Model {
    model: Retained<MLModel>,
    /// Lock of synchronous predictions, which run one at a time.
    turn: Mutex<()>,
}

// SAFETY: a model may be used from any thread; synchronous predictions take turns, asynchronous ones
// need not (Core ML's `MLModel.h`).
unsafe impl Send for Model {}
// SAFETY: as above.
unsafe impl Sync for Model {}

/// An array.
#[derive(Clone, Debug)]
pub(crate) struct Array(Retained<MLMultiArray>);

// SAFETY: an array has no thread of its own; what is in its memory is its users' concern.
unsafe impl Send for Array {}

/// State of a model.
pub(crate) struct State(Retained<MLState>);

/// Results of a prediction.
struct Features(Retained<ProtocolObject<dyn MLFeatureProvider>>);

// SAFETY: features are read by one thread, and written by none once they are complete.
unsafe impl Send for Features {}

/// A prediction that is to be made.
struct Prediction {
    model: Arc<Model>,
    inputs: Retained<ProtocolObject<dyn MLFeatureProvider>>,
    options: Retained<MLPredictionOptions>,
    /// State of a model that has states. Systems with states predict asynchronously.
    state: Option<Retained<MLState>>,
}

// SAFETY: it is used by the one thread that makes the prediction; for the model, see there.
unsafe impl Send for Prediction {}

impl Prediction {
    /// Begins a prediction, whose result is sent.
    fn begin(self, tell: Sender<Result<Features, ModelError>>) {
        if available!(macos = 14.0, ios = 17.0) {
            return self.begin_asynchronously(tell);
        }
        let failed = tell.clone();
        let named = thread::Builder::new().name("rustorch-coreml".to_owned());
        let spawned = named.spawn(move || {
            // Nobody may be left who wants it.
            let _ = tell.send(self.make());
        });
        if let Err(e) = spawned {
            // The receiver is the caller's.
            let _ = failed.send(Err(ModelError::new(0, e)));
        }
    }

    fn begin_asynchronously(self, tell: Sender<Result<Features, ModelError>>) {
        let handler = RcBlock::new(
            move |features: *mut ProtocolObject<dyn MLFeatureProvider>, error: *mut NSError| {
                // SAFETY: a handler is given valid features or none.
                let features = unsafe { Retained::retain(features) };
                // Nobody may be left who wants it.
                let _ = tell.send(features.map(Features).ok_or_else(|| handed(error)));
            },
        );
        let (model, inputs, options) = (&self.model.model, &self.inputs, &self.options);
        // SAFETY: all are valid, Core ML keeps them, and the handler uses nothing that is another
        // thread's. No other prediction uses the state.
        unsafe {
            match &self.state {
                Some(state) => model.predictionFromFeatures_usingState_options_completionHandler(
                    inputs, state, options, &handler,
                ),
                None => model
                    .predictionFromFeatures_options_completionHandler(inputs, options, &handler),
            }
        }
    }

    fn make(self) -> Result<Features, ModelError> {
        let _turn = (self.model.turn.lock()).unwrap_or_else(PoisonError::into_inner);
        autoreleasepool(|_| {
            let (model, inputs, options) = (&self.model.model, &self.inputs, &self.options);
            // SAFETY: all are valid, and nobody else predicts with the model.
            let made = unsafe { model.predictionFromFeatures_options_error(inputs, options) };
            made.map(Features).map_err(|e| error(&e))
        })
    }
}

/// A prediction that was begun.
pub(crate) struct Pending {
    told: Receiver<Result<Features, ModelError>>,
    offered: Vec<(String, Array)>,
}

/// Inputs as Core ML takes them.
fn provider(
    inputs: &[(String, Array)],
) -> Result<Retained<ProtocolObject<dyn MLFeatureProvider>>, ModelError> {
    // SAFETY: the array is valid.
    let value = |array: &Array| unsafe { MLFeatureValue::featureValueWithMultiArray(&array.0) };
    let values = dictionary(inputs, |array| value(array).into());
    let provider = MLDictionaryFeatureProvider::alloc();
    // SAFETY: the dictionary has values of features by their names.
    let provider =
        unsafe { MLDictionaryFeatureProvider::initWithDictionary_error(provider, &values) };
    let provider = provider.map_err(|e| error(&e))?;
    Ok(ProtocolObject::from_retained(provider))
}

/// A dictionary of arrays, converted by `object`, by their names.
fn dictionary(
    arrays: &[(String, Array)],
    object: impl Fn(&Array) -> Retained<AnyObject>,
) -> Retained<NSDictionary<NSString, AnyObject>> {
    let names: Vec<_> = (arrays.iter())
        .map(|(name, _)| NSString::from_str(name))
        .collect();
    let names: Vec<&NSString> = names.iter().map(|name| &**name).collect();
    let objects: Vec<_> = arrays.iter().map(|(_, array)| object(array)).collect();
    NSDictionary::from_retained_objects(&names, &objects)
}

fn options(outputs: &[(String, Array)]) -> Retained<MLPredictionOptions> {
    let backings = dictionary(outputs, |array| array.0.clone().into());
    // SAFETY: a new object, and arrays by the names of outputs.
    unsafe {
        let options = MLPredictionOptions::new();
        if available!(macos = 11.0, ios = 16.0) {
            options.setOutputBackings(&backings);
        }
        options
    }
}

/// A pixel buffer of halves over an IOSurface; `None` if there is no memory for it.
fn pixels(width: usize, height: usize) -> Option<CFRetained<CVPixelBuffer>> {
    // SAFETY: a constant of the system's, which is never changed.
    let key = unsafe { kCVPixelBufferIOSurfacePropertiesKey };
    let properties = CFDictionary::<CFString, CFType>::empty();
    let attributes = CFDictionary::from_slices(&[key], &[&*properties]);
    let mut created: *mut CVPixelBuffer = std::ptr::null_mut();
    // SAFETY: attributes have dictionaries by the names of properties, and the buffer's place is valid.
    let status = unsafe {
        CVPixelBufferCreate(
            None,
            width,
            height,
            kCVPixelFormatType_OneComponent16Half,
            Some(attributes.as_opaque()),
            NonNull::from(&mut created),
        )
    };
    let created = NonNull::new(created).filter(|_| status == kCVReturnSuccess)?;
    // SAFETY: who creates a buffer owns it.
    Some(unsafe { CFRetained::from_raw(created) })
}

/// Place of an output.
fn result(features: &Features, name: &str, offered: &Array) -> Result<Output<Array>, ModelError> {
    // SAFETY: the features are complete.
    let value = unsafe { features.0.featureValueForName(&NSString::from_str(name)) };
    // SAFETY: the value is valid.
    let array = value.and_then(|value| unsafe { value.multiArrayValue() });
    let array = array.ok_or_else(|| ModelError::new(1, format!("no array {name}")))?;
    Ok(
        match Retained::as_ptr(&array) == Retained::as_ptr(&offered.0) {
            true => Output::Offered,
            false => Output::Own(Array(array)),
        },
    )
}

impl Array {
    /// Bytes of an element.
    fn size(&self) -> Option<usize> {
        // SAFETY: the array is valid.
        match unsafe { self.0.dataType() } {
            MLMultiArrayDataType::Float16 => Some(2),
            MLMultiArrayDataType::Float32 | MLMultiArrayDataType::Int32 => Some(4),
            _ => None,
        }
    }

    /// Its elements in order.
    fn elements(&self) -> Option<Vec<u8>> {
        let size = self.size()?;
        // SAFETY: the array is valid.
        let (shape, strides) = unsafe { (sizes(&self.0.shape()), sizes(&self.0.strides())) };
        if available!(macos = 12.3, ios = 15.4) {
            let found = Cell::new(None);
            let read = RcBlock::new(|start: NonNull<c_void>, count: isize| {
                let count = usize::try_from(count).unwrap_or_default();
                // SAFETY: the handler is given the array's bytes, which are there until it returns.
                let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr().cast(), count) };
                found.set(gathered(bytes, &shape, &strides, size));
            });
            // SAFETY: the handler is called before this returns, and keeps nothing.
            unsafe { self.0.getBytesWithHandler(&read) };
            drop(read);
            return found.into_inner();
        }
        let last: usize = (shape.iter().zip(&strides))
            .map(|(n, stride)| n.saturating_sub(1) * stride)
            .sum();
        // SAFETY: systems before those with the other method have this one; the array is valid.
        let start: NonNull<c_void> = unsafe { msg_send![&self.0, dataPointer] };
        // SAFETY: the array has memory up to its last element.
        let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr().cast(), (last + 1) * size) };
        gathered(bytes, &shape, &strides, size)
    }
}

impl Array {
    /// Puts elements to where they lie; are there as many?
    fn write(&self, from: &[u8]) -> bool {
        let Some(size) = self.size() else {
            return false;
        };
        // SAFETY: the array is valid.
        let shape = unsafe { sizes(&self.0.shape()) };
        let is_written = Cell::new(false);
        let write = RcBlock::new(
            |start: NonNull<c_void>, count: isize, strides: NonNull<NSArray<NSNumber>>| {
                let count = usize::try_from(count).unwrap_or_default();
                // SAFETY: the handler is given the array's bytes, which nobody else uses until it
                // returns, and valid strides.
                let (bytes, strides) = unsafe {
                    let bytes = std::slice::from_raw_parts_mut(start.as_ptr().cast(), count);
                    (bytes, sizes(strides.as_ref()))
                };
                is_written.set(scatter(from, bytes, &shape, &strides, size));
            },
        );
        // SAFETY: surfaces are there from systems on that have the method; the handler is called before
        // this returns, and keeps nothing.
        unsafe { self.0.getMutableBytesWithHandler(&write) };
        drop(write);
        is_written.into_inner()
    }
}

/// The unit that each operation of a plan prefers.
fn preferences_of(plan: &MLComputePlan) -> Option<Vec<(String, Option<ComputeUnit>)>> {
    // SAFETY: all that is read of a plan is valid as long as it is held.
    unsafe {
        let functions = plan.modelStructure().program()?.functions();
        let main = functions.objectForKey(&NSString::from_str("main"))?;
        let operations = main.block().operations();
        let preference = |operation: Retained<_>| {
            let usage = plan.computeDeviceUsageForMLProgramOperation(&operation);
            let preferred = usage.and_then(|usage| unit(&usage.preferredComputeDevice()));
            (operation.operatorName().to_string(), preferred)
        };
        Some(operations.iter().map(preference).collect())
    }
}

impl Api for System {
    type Model = Arc<Model>;
    type Array = Array;
    type State = State;
    type Pending = Pending;

    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn compile(&self, package: &Path, to: &Path) -> Result<(), ModelError> {
        autoreleasepool(|_| {
            let compiled = compiled(&*url(package)?)?;
            let files = NSFileManager::defaultManager();
            let moved = files.moveItemAtURL_toURL_error(&compiled, &*url(to)?);
            moved.map_err(|e| {
                // A compiled model that was not moved is removed. The first error says more than a second one.
                let _ = files.removeItemAtURL_error(&compiled);
                error(&e)
            })
        })
    }

    fn load(&self, compiled: &Path, units: ComputeUnits) -> Result<Arc<Model>, ModelError> {
        autoreleasepool(|_| {
            let (url, configuration) = (url(compiled)?, configuration(units));
            // SAFETY: both are valid.
            let model = unsafe {
                MLModel::modelWithContentsOfURL_configuration_error(&url, &configuration)
            };
            let model = model.map_err(|e| error(&e))?;
            let turn = Mutex::default();
            Ok(Arc::new(Model { model, turn }))
        })
    }

    fn preferences(
        &self,
        compiled: &Path,
        units: ComputeUnits,
    ) -> Result<Vec<(String, Option<ComputeUnit>)>, ModelError> {
        if !available!(macos = 14.4, ios = 17.4) {
            return Ok(Vec::new());
        }
        autoreleasepool(|_| {
            let (url, configuration) = (url(compiled)?, configuration(units));
            let (tell, told) = mpsc::channel();
            let handler = RcBlock::new(move |plan: *mut MLComputePlan, error: *mut NSError| {
                // SAFETY: a handler is given a valid plan or none.
                let plan = unsafe { plan.as_ref() }.ok_or_else(|| handed(error));
                let found = plan.map(|plan| preferences_of(plan).unwrap_or_default());
                // Nobody may be left who wants it.
                let _ = tell.send(found);
            });
            // SAFETY: all are valid, and the handler uses nothing that is another thread's.
            unsafe {
                MLComputePlan::loadContentsOfURL_configuration_completionHandler(
                    &url,
                    &configuration,
                    &handler,
                );
            }
            await_handler(&told)
        })
    }

    unsafe fn array(
        &self,
        memory: &HostBuffer,
        shape: &[usize],
        elements: ArrayDataType,
    ) -> Result<Array, ModelError> {
        let data_type = match elements {
            ArrayDataType::Float16 => MLMultiArrayDataType::Float16,
            ArrayDataType::Float32 => MLMultiArrayDataType::Float32,
            ArrayDataType::Int32 => MLMultiArrayDataType::Int32,
            other => return Err(ModelError::new(1, format!("no array of {other:?}"))),
        };
        let mut strides = vec![1; shape.len()];
        for d in (1..shape.len()).rev() {
            strides[d - 1] = strides[d] * shape[d];
        }
        let kept = memory.clone();
        // The memory lives as long as this closure, which lives as long as the array.
        let release = RcBlock::new(move |_: NonNull<c_void>| {
            let _ = &kept;
        });
        let start = NonNull::new(memory.as_ptr().cast());
        let start = start.ok_or_else(|| ModelError::new(0, "an array without memory"))?;
        autoreleasepool(|_| {
            let (shape, strides) = (numbers(shape), numbers(&strides));
            // SAFETY: the memory has the array's bytes and lives as long as the array; the caller
            // sees to who uses it.
            let array = unsafe {
                MLMultiArray::initWithDataPointer_shape_dataType_strides_deallocator_error(
                    MLMultiArray::alloc(),
                    start,
                    &shape,
                    data_type,
                    &strides,
                    Some(&release),
                )
            };
            array.map(Array).map_err(|e| error(&e))
        })
    }

    fn surface(&self, shape: &[usize]) -> Option<Array> {
        let (&width, rows) = shape.split_last()?;
        autoreleasepool(|_| {
            let pixels = pixels(width, rows.iter().product())?;
            // SAFETY: a buffer of halves, as wide as the last dimension and as high as the others.
            let array = unsafe {
                MLMultiArray::initWithPixelBuffer_shape(
                    MLMultiArray::alloc(),
                    &pixels,
                    &numbers(shape),
                )
            };
            Some(Array(array))
        })
    }

    fn new_state(&self, model: &Arc<Model>) -> State {
        // SAFETY: models with states are loaded by systems that know them.
        autoreleasepool(|_| State(unsafe { model.model.newState() }))
    }

    fn fill(&self, state: &State, name: &str, from: &[u8]) -> Result<(), ModelError> {
        let is_filled = Cell::new(false);
        let fill = RcBlock::new(|array: NonNull<MLMultiArray>| {
            // SAFETY: the handler is given a valid array, of which nobody else makes use until it
            // returns.
            let array = unsafe { Retained::retain(array.as_ptr()) };
            is_filled.set(array.is_some_and(|array| Array(array).write(from)));
        });
        // SAFETY: the model has a state of the name, no prediction uses it, and the handler is called
        // before this returns and keeps nothing.
        autoreleasepool(|_| unsafe {
            let name = NSString::from_str(name);
            state.0.getMultiArrayForStateNamed_handler(&name, &fill);
        });
        drop(fill);
        match is_filled.into_inner() {
            true => Ok(()),
            false => Err(ModelError::new(1, "a state of another type or shape")),
        }
    }

    fn predict(
        &self,
        model: &Arc<Model>,
        inputs: Vec<(String, Array)>,
        outputs: Vec<(String, Array)>,
        state: Option<&State>,
    ) -> Pending {
        let (tell, told) = mpsc::channel();
        autoreleasepool(|_| match provider(&inputs) {
            Ok(inputs) => {
                let prediction = Prediction {
                    model: model.clone(),
                    inputs,
                    options: options(&outputs),
                    state: state.map(|state| state.0.clone()),
                };
                prediction.begin(tell);
            }
            Err(e) => {
                // The receiver is below.
                let _ = tell.send(Err(e));
            }
        });
        Pending {
            told,
            offered: outputs,
        }
    }

    fn wait(
        &self,
        pending: Pending,
        limit: Option<Duration>,
    ) -> Option<Result<Vec<Output<Array>>, ModelError>> {
        let told = match limit {
            None => await_handler(&pending.told),
            Some(limit) => match pending.told.recv_timeout(limit) {
                Ok(told) => told,
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => {
                    Err(ModelError::new(0, "nothing was completed"))
                }
            },
        };
        Some(autoreleasepool(|_| {
            let features = told?;
            let offered = pending.offered.iter();
            offered
                .map(|(name, array)| result(&features, name, array))
                .collect()
        }))
    }

    fn read(&self, array: &Array, to: &mut [u8]) -> Result<(), ModelError> {
        let elements = autoreleasepool(|_| array.elements());
        match elements {
            Some(elements) if elements.len() == to.len() => {
                to.copy_from_slice(&elements);
                Ok(())
            }
            _ => Err(ModelError::new(1, "an array of another type or shape")),
        }
    }

    fn write(&self, array: &Array, from: &[u8]) -> Result<(), ModelError> {
        match autoreleasepool(|_| array.write(from)) {
            true => Ok(()),
            false => Err(ModelError::new(1, "an array of another type or shape")),
        }
    }
}
