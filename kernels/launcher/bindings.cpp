// tinyparallel_launcher: what Python sees of the native layer.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "cpu_module.h"
#include "cuda_module.h"

namespace py = pybind11;
using namespace launcher;

PYBIND11_MODULE(tinyparallel_launcher, m) {
    m.doc() = "Launches kernels from CPU and GPU builds of one kernels.cu.";

    py::class_<Buffer>(m, "Buffer")
        .def(py::init<std::string, std::uint64_t, std::uint64_t, std::uint32_t, std::string>(),
             py::arg("name"), py::arg("address"), py::arg("nbytes"), py::arg("element"),
             py::arg("role"));
    py::class_<Place>(m, "Place")
        .def_readonly("pc", &Place::pc)
        .def_readonly("file", &Place::file)
        .def_readonly("line", &Place::line);
    py::class_<Fault>(m, "Fault")
        .def_readonly("kind", &Fault::kind)
        .def_readonly("has_thread", &Fault::has_thread)
        .def_readonly("block", &Fault::block)
        .def_readonly("thread", &Fault::thread)
        .def_readonly("places", &Fault::places)
        .def_readonly("message", &Fault::message);
    py::class_<Outcome>(m, "Outcome")
        .def_readonly("seconds", &Outcome::seconds)
        .def_readonly("fault", &Outcome::fault);
    py::class_<DeviceInfo>(m, "DeviceInfo")
        .def_readonly("name", &DeviceInfo::name)
        .def_readonly("multiprocessors", &DeviceInfo::multiprocessors)
        .def_readonly("major", &DeviceInfo::major)
        .def_readonly("minor", &DeviceInfo::minor);

    py::class_<Module>(m, "Module")
        .def("kernels", &Module::kernels)
        .def(
            "launch",
            [](Module& self, std::string kernel, std::vector<std::uint32_t> grid,
               std::vector<std::uint32_t> block, std::uint32_t shared_bytes,
               std::uint32_t order, std::string kinds,
               std::vector<std::int64_t> integers, std::vector<double> reals,
               std::vector<Buffer> buffers, std::uint64_t stream, bool timed) {
                Launch launch{std::move(kernel), std::move(grid),    std::move(block),
                              shared_bytes,      order,              std::move(kinds),
                              std::move(integers), std::move(reals), std::move(buffers), stream};
                py::gil_scoped_release release;
                return self.launch(launch, timed);
            },
            py::arg("kernel"), py::arg("grid"), py::arg("block"), py::arg("shared_bytes"),
            py::arg("order"), py::arg("kinds"), py::arg("integers"), py::arg("reals"),
            py::arg("buffers"),
            py::arg("stream"), py::arg("timed"));
    py::class_<CpuModule, Module>(m, "CpuModule")
        .def(py::init<const std::string&, const CpuModule::Variables&,
                      const CpuModule::Variables&>(),
             py::arg("path"), py::arg("shared"), py::arg("device"));
    py::class_<CudaModule, Module>(m, "CudaModule")
        .def(py::init([](const py::bytes& cubin, int device) {
                 return new CudaModule(std::string(cubin), device);
             }),
             py::arg("cubin"), py::arg("device"));

    m.def("cuda_problem", []() -> std::optional<std::string> {
        std::string reason;
        if (cuda_driver(&reason) != nullptr) return std::nullopt;
        return reason;
    }, "None when a GPU can be used, else why not.");
    m.def("device_info", &device_info, py::arg("device"));
}
