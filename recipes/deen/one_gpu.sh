#!/usr/bin/env bash
# The model of this recipe on one GPU, with the teacher of models/deen-teacher. The minutes are for half an hour of an H200.
#
#     recipes/deen/one_gpu.sh DATA
#
# A corpus that is in runs/deen already, prepared on another machine, is used as it is. Killed at any moment, the same command goes on.
# MINUTES_TEACHER=4.5 lets the teacher learn for so long first. START_LATENT=MODEL begins with the weights of a latent model, such as
# the one that ships, instead of the teacher's encoder alone.
set -euo pipefail
data=$1 recipe=recipes/deen work=runs/deen teacher=${TEACHER:-models/deen-teacher} processes=${PROCESSES:-4}
minutes_teacher=${MINUTES_TEACHER:-0} minutes_latent=${MINUTES_LATENT:-11.5} minutes_score=${MINUTES_SCORE:-1.7}
minutes_reranker=${MINUTES_RERANKER:-1.9} minutes_student=${MINUTES_STUDENT:-2}
sets=(tatoeba-deen/dev europarl-deen/dev news-deen/newstest2013)
larger=(--set teacher.model.encoder_layers=6 --set teacher.model.layers=2)  # the student, beside the reranker

say() { printf '%5d s  %s\n' "$SECONDS" "$*"; }

train() {  # RECIPE WORK STAGE MINUTES OPTION…
  say "$2: $3"
  python3 -m latentmt train "$1" --work "$2" --stage "$3" --budget-minutes "$4" "${@:5}"
}

# Compiling takes minutes and hardly any GPU: a few steps on references fill the compiler's cache meanwhile.
warm_up() {
  local folder=runs/warm-up
  [ -e $folder ] && return
  mkdir -p $folder/student
  ln -s "$PWD/$work/corpus" $folder/ && ln -s "$PWD/$work/corpus" $folder/student/
  ln -s "$(realpath "$teacher")/teacher" $folder/
  train $recipe $folder latent 0.05 --set distill=null && train $recipe $folder score 0.05 --set distill=null
  train $recipe/reranker.yaml $folder/student teacher 0.05
  train $recipe/reranker.yaml $folder/student teacher 0.05 --replace "${larger[@]}"
} > runs/warm-up.log 2>&1

student() {  # NAME MINUTES OPTION…
  mkdir -p "runs/$1" && ln -sfn ../deen/distilled "runs/$1/corpus"
  train $recipe/reranker.yaml "runs/$1" teacher "${@:2}" > "runs/$1/log" 2>&1
}

evaluate() {  # MODEL OPTION…
  for set in "${sets[@]}"; do
    say "BLEU: $set $*"
    python3 -m latentmt evaluate --src "$data/$set.de.gz" --ref "$data/$set.en.gz" --model "$@"
  done
}

mkdir -p runs
say "corpus"
[ -e $work/corpus ] || python3 -m latentmt prepare $recipe --data "$data" --tokenizer "$teacher/teacher/tokenizer.model"
warm_up &
if [ "$minutes_teacher" = 0 ]; then
  [ -e $work/teacher ] || cp -r "$(realpath "$teacher")/teacher" $work/teacher
else
  train $recipe $work teacher "$minutes_teacher" --start "$teacher" \
    --set teacher.train.learning_rate=7e-4 --set teacher.train.warmup=300  # for a teacher that has learnt already
fi

say "distillation"
evaluate $work --method teacher > runs/teacher.log 2>&1 &
torchrun --nproc-per-node "$processes" -m latentmt distill $recipe

train $recipe $work latent "$minutes_latent" ${START_LATENT:+--start "$START_LATENT"}
student reranker "$minutes_reranker" &
reranker=$!
train $recipe $work language_model 0  # counted on the CPU
train $recipe $work score "$minutes_score"
wait $reranker

student student "$minutes_student" "${larger[@]}" &
student=$!
mkdir -p runs/model && for part in $work/latent $work/score $work/language_model runs/reranker/teacher; do ln -sfn "$PWD/$part" runs/model/; done
evaluate runs/model --steps 1
evaluate runs/model --method prior --method delta --steps 1 --lm-weight 0.27
evaluate runs/model --method score --steps 1 --lengths 5 --samples 5 --rerank teacher
wait $student
for model in reranker student; do evaluate runs/$model --method teacher; done
