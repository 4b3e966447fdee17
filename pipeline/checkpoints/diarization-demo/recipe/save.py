import lightning
import torch


def save_checkpoint(model, path, half=True):
    """A minimal checkpoint that pyannote Model.from_pretrained accepts (same keys as Model.on_save_checkpoint).
    Weights are stored in fp16: load_state_dict casts them back to the fp32 of the freshly built module."""
    sd = {
        k: (v.detach().half() if half and v.is_floating_point() else v.detach().clone())
        for k, v in model.state_dict().items()
    }
    ck = {
        "state_dict": sd,
        "hyper_parameters": dict(model.hparams),
        "pytorch-lightning_version": lightning.__version__,
        "epoch": 0,
        "global_step": 0,
        "loops": None,
        "callbacks": {},
        "optimizer_states": [],
        "lr_schedulers": [],
    }
    model.on_save_checkpoint(ck)
    torch.save(ck, path)
