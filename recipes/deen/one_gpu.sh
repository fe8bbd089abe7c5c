#!/usr/bin/env bash
# The model of this recipe on one GPU, with the teacher of models/deen-teacher. The minutes are for half an hour of an H200.
#
#     recipes/deen/one_gpu.sh DATA
#
# A corpus that is in runs/deen already, prepared on another machine, is used as it is. Killed at any moment, the same command goes on.
set -euo pipefail
data=$1 recipe=recipes/deen work=runs/deen teacher=models/deen-teacher
minutes_teacher=${MINUTES_TEACHER:-2} minutes_latent=${MINUTES_LATENT:-13} minutes_score=${MINUTES_SCORE:-2}
minutes_student=${MINUTES_STUDENT:-4} processes=${PROCESSES:-3}

say() { printf '%5d s  %s\n' "$SECONDS" "$*"; }

train() {  # RECIPE WORK STAGE MINUTES OPTION…
  say "$2: $3"
  python3 -m latentmt train "$1" --work "$2" --stage "$3" --budget-minutes "$4" "${@:5}"
}

# Compiling takes minutes and no GPU: a few steps on references fill the compiler's cache while the teacher translates.
warm_up() {
  local folder=runs/warm-up
  rm -rf "$folder" && mkdir -p "$folder"
  ln -s "$PWD/$work/corpus" "$folder/corpus" && ln -s "$PWD/$work/corpus" "$folder/distilled"
  train $recipe "$folder" latent 0.05 > "$folder/log" 2>&1 || true
}

student() {  # NAME OPTION…
  mkdir -p "runs/$1" && ln -sfn ../deen/distilled "runs/$1/corpus"
  train $recipe/reranker.yaml "runs/$1" teacher "$minutes_student" "${@:2}" > "runs/$1/log" 2>&1
}

evaluate() {  # SET OPTION…
  say "BLEU: $1 ${*:2}"
  python3 -m latentmt evaluate --src "$data/$1.de.gz" --ref "$data/$1.en.gz" "${@:2}"
}

say "corpus"
[ -e $work/corpus ] || python3 -m latentmt prepare $recipe --data "$data" --tokenizer $teacher/teacher/tokenizer.model
train $recipe $work teacher "$minutes_teacher" --start $teacher \
  --set teacher.train.learning_rate=3e-4 --set teacher.train.warmup=100  # learns again what 8 bits and its repair cost

say "distillation"
[ -e $work/latent ] || warm_up &
torchrun --nproc-per-node "$processes" -m latentmt distill $recipe
wait

{ student reranker && student student --set teacher.model.encoder_layers=6 --set teacher.model.layers=2; } &
students=$!
train $recipe $work latent "$minutes_latent"
wait $students
train $recipe $work score "$minutes_score"

mkdir -p runs/model && for part in $work/latent $work/score runs/reranker/teacher; do ln -sfn "$PWD/$part" runs/model/; done
for set in tatoeba-deen/dev europarl-deen/dev news-deen/newstest2013; do
  evaluate "$set" --model runs/model --steps 1
  evaluate "$set" --model runs/model --method prior --method score --steps 1 --lengths 5 --samples 5 --rerank teacher
  for folder in $work runs/reranker runs/student; do evaluate "$set" --model "$folder" --method teacher; done
done
