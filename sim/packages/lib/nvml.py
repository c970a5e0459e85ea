"""The few NVML calls that the stand-ins need, by ctypes: they run where no Python package is installed.

build.sh puts this text in the place of `from nvml import ...` in each program.
"""

import ctypes

NVML_LIBRARY = "libnvidia-ml.so.1"
NOT_SUPPORTED, FUNCTION_NOT_FOUND = 3, 13


class NvmlError(Exception):
    """NVML did not answer: the library is not there (code None), or `code` (nvmlReturn_t) came back."""

    def __init__(self, message, code=None):
        super().__init__(message)
        self.code = code


class Nvml:
    """An initialised NVML. Raises NvmlError when the library is missing or a call fails."""

    def __init__(self):
        try:
            self.library = ctypes.CDLL(NVML_LIBRARY)
        except OSError as error:
            raise NvmlError(f"{NVML_LIBRARY} not found ({error}): is the driver installed?") from error
        self.library.nvmlErrorString.restype = ctypes.c_char_p
        self.call("nvmlInit_v2")

    def call(self, name, *arguments):
        try:
            function = getattr(self.library, name)
        except AttributeError:
            raise NvmlError(f"{name}: this driver's NVML has no such function", FUNCTION_NOT_FOUND) from None
        code = function(*arguments)
        if code:
            raise NvmlError(self.library.nvmlErrorString(code).decode(), code)

    def close(self):
        self.call("nvmlShutdown")

    def driver_version(self):
        text = ctypes.create_string_buffer(96)
        self.call("nvmlSystemGetDriverVersion", text, 96)
        return text.value.decode()

    def gpus(self):
        """Handles of all cards, in NVML's order."""
        count = ctypes.c_uint()
        self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        handles = []
        for index in range(count.value):
            handle = ctypes.c_void_p()
            self.call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
            handles.append(handle)
        return handles

    def text(self, name, gpu):
        """What nvmlDeviceGet<name> says of a card, as text (UUID, Name)."""
        text = ctypes.create_string_buffer(96)
        self.call("nvmlDeviceGet" + name, gpu, text, 96)
        return text.value.decode()

    def number(self, name, gpu, *before):
        """What nvmlDeviceGet<name> says of a card, as a whole number in NVML's unit (mW, MHz, degrees)."""
        value = ctypes.c_uint()
        self.call("nvmlDeviceGet" + name, gpu, *before, ctypes.byref(value))
        return value.value
