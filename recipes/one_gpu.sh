#!/usr/bin/env bash
# The model of a recipe on one GPU. The minutes are for half an hour of an H200.
#
#     recipes/one_gpu.sh recipes/deen DATA
#
# The recipe's name says its languages: deen is from German to English. A corpus that is in runs/deen already, prepared on another
# machine, is used as it is. Killed at any moment, the same command goes on.
#
# If there is a models/deen-teacher, it teaches; with MINUTES_TEACHER=4.5 it learns for so long first. Otherwise a teacher learns from
# the beginning. START_LATENT=MODEL begins with the weights of a latent model, such as the one that ships, instead of the teacher's
# encoder alone. A student learns as well: an autoregressive model of the latent model's width, for comparison.
set -euo pipefail
recipe=$1 data=$2 name=$(basename "$1") processes=${PROCESSES:-4}
work=runs/$name teacher=${TEACHER:-models/$name-teacher} source=${name:0:2} target=${name:2:2}
minutes_latent=${MINUTES_LATENT:-11.5} minutes_student=${MINUTES_STUDENT:-2}
sets=(tatoeba-deen/dev europarl-deen/dev news-deen/newstest2013)
small=(--set teacher.model.preset=small --set teacher.model.heads=4 --set teacher.model.encoder_layers=6 --set teacher.model.layers=2
  --set teacher.model.dropout=0.05 --set teacher.train.batch_rows=256 --set teacher.train.learning_rate=1.5e-3
  --set teacher.train.warmup=500)

say() { printf '%5d s  %s\n' "$SECONDS" "$*"; }

train() {  # WORK STAGE MINUTES OPTION…
  say "$1: $2"
  python3 -m latentmt train "$recipe" --work "$1" --stage "$2" --budget-minutes "$3" "${@:4}"
}

# Compiling takes minutes and hardly any GPU: a few steps on references fill the compiler's cache while the teacher translates. Not
# before: how many steps the minutes have room for is measured at the start of each stage, and nothing else should run then.
warm_up() {
  local folder=runs/warm-up-$name
  [ -e "$folder" ] && return
  mkdir -p "$folder/student"
  ln -s "$PWD/$work/corpus" "$folder/" && ln -s "$PWD/$work/corpus" "$folder/student/"
  ln -s "$PWD/$work/teacher" "$folder/"
  train "$folder" latent 0.05 --set distill=null
  train "$folder/student" teacher 0.05 "${small[@]}"
}

evaluate() {  # MODEL OPTION…
  for set in "${sets[@]}"; do
    say "BLEU: $set $*"
    python3 -m latentmt evaluate --src "$data/$set.$source.gz" --ref "$data/$set.$target.gz" --model "$@"
  done
}

mkdir -p "$work"
say "corpus"
[ -e "$work/corpus" ] || python3 -m latentmt prepare "$recipe" --data "$data" --tokenizer models/deen-teacher/teacher/tokenizer.model
if [ ! -e "$teacher" ]; then
  train "$work" teacher "${MINUTES_TEACHER:-9}"
elif [ -n "${MINUTES_TEACHER:-}" ]; then  # it has learnt already
  train "$work" teacher "$MINUTES_TEACHER" --start "$teacher" --set teacher.train.learning_rate=7e-4 --set teacher.train.warmup=300
elif [ ! -e "$work/teacher" ]; then
  cp -r "$(realpath "$teacher")/teacher" "$work/teacher"
fi

say "distillation"
warm_up > "$work/warm-up.log" 2>&1 &
evaluate "$work" --method teacher > "$work/teacher.log" 2>&1 &
torchrun --nproc-per-node "$processes" -m latentmt distill "$recipe" --work "$work"
wait

train "$work" language_model 0  # counted on the CPU
train "$work" latent "$minutes_latent" ${START_LATENT:+--start "$START_LATENT"}
mkdir -p "runs/$name-student" && ln -sfn "$PWD/$work/distilled" "runs/$name-student/corpus"
train "runs/$name-student" teacher "$minutes_student" "${small[@]}" > "$work/student.log" 2>&1 &
student=$!
evaluate "$work" --method prior --method delta --steps 1 --lm-weight 0
evaluate "$work" --method prior --method delta --steps 1 --lm-weight 0.27
wait $student
evaluate "runs/$name-student" --method teacher
