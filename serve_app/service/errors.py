"""What says that the service could not be started."""

from pipeline.errors import CallError


class ServiceError(CallError):
    """The service could not be started."""

    code = "service_error"
