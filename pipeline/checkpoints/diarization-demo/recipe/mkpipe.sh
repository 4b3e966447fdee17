#!/bin/sh
# Assemble the pipeline folder from trained checkpoints; run from this folder, after train_segmentation.py and train_embedding.py.
set -e
mkdir -p pipeline/segmentation pipeline/embedding pipeline/plda
cp segmentation.bin pipeline/segmentation/pytorch_model.bin
cp embedding.bin pipeline/embedding/pytorch_model.bin
[ -f pipeline/plda/plda.npz ] || python make_plda.py data pipeline/embedding pipeline/plda
cat > pipeline/config.yaml <<Y
dependencies:
  pyannote.audio: 4.0.7
pipeline:
  name: pyannote.audio.pipelines.SpeakerDiarization
  params:
    segmentation: \$model/segmentation
    segmentation_batch_size: 32
    embedding: \$model/embedding
    embedding_batch_size: 32
    embedding_exclude_overlap: true
    plda: \$model/plda
    clustering: AgglomerativeClustering
params:
  segmentation:
    min_duration_off: 0.0
  clustering:
    method: centroid
    min_cluster_size: 8
    threshold: ${AHC_T:-0.75}
Y
sed -e 's/AgglomerativeClustering/VBxClustering/' -e '/method: centroid/d' -e "s/min_cluster_size: 8/Fa: ${FA:-0.07}\n    Fb: ${FB:-0.8}/" -e "s/threshold: .*/threshold: ${VBX_T:-0.6}/" pipeline/config.yaml > pipeline/config-vbx.yaml
