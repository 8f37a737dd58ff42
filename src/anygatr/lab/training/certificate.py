"""The `certify` command: the equivariance of a trained run's best weights, layer by layer and generator by generator."""

from anygatr.lab.config.commands import CertifyConfig
from anygatr.lab.training.run import TrainingRun
from anygatr.testing import Certificate, certify


def certify_run(config: CertifyConfig) -> Certificate:
    """Certify the model of a run and print the table; raises where it is not equivariant."""
    module = TrainingRun.open(config.run).module()
    certificate = certify(module)
    print(certificate.to_json() if config.json else certificate)
    if not certificate.ok:
        raise ValueError(f"the model of {config.run!r} is not equivariant: the errors marked ! name the layers")
    return certificate
