"""Failures of programs and files that were made for another Keras, TensorFlow or Python, or that are damaged."""

from __future__ import annotations

from known_issues.issue import KnownIssue

# Names of TensorFlow 1 that `tensorflow` has no more; `tensorflow.compat.v1` has them.
TF1_NAMES = (
    "Session|InteractiveSession|placeholder|placeholder_with_default|get_default_graph|get_default_session|ConfigProto|"
    "GPUOptions|global_variables_initializer|initialize_all_variables|local_variables_initializer|tables_initializer|"
    "app|flags|logging|gfile|python_io|set_random_seed|reset_default_graph|variable_scope|get_variable|layers|contrib|"
    "GraphKeys|trainable_variables|global_variables|get_collection|add_to_collection|log|to_float|to_int32|to_int64|"
    "mul|sub|pack|select|div|spectral|truncated_normal|random_normal|random_uniform|decode_raw|diag|AUTO_REUSE|"
    "summary_op|batch_gather|matrix_inverse|verify_tensor_all_finite|ceil|confusion_matrix|sparse_placeholder|"
    "colocate_with|assign|assign_add|count_nonzero|read_file|image_summary|scalar_summary|merge_all_summaries|"
    "train_op|GraphDef|NodeDef|FixedLenFeature|parse_single_example|string_split|substr|py_func|lin_space|Dimension|"
    "disable_v2_behavior|enable_eager_execution|make_template|is_nan|is_inf|is_finite|saved_model_main_op|Print|"
    "real_div|all_variables|assign_sub|checkpoint_exists|conj|cross|depth_to_space|digamma|erf|fft|floormod|"
    "global_norm|imag|invert_permutation|is_strictly_increasing|lgamma|log1p|model_variables|multinomial|"
    r"parse_example|real|reciprocal|resource_loader|rsqrt|svd|tables|user_ops|zeta|"
    r"get_(?:local_variable|seed|session_\w{1,20}|collection_ref|variable_scope)|(?:sparse|matrix|segment|"
    r"unsorted_segment|string|quantize|reduce|extract|batch|to)_\w{1,40}|random_(?!index)\w{1,40}|"
    r"\w{1,40}_(?:variables|partitioner|variables_initializer)|scatter_(?!n)\w{1,20}"
)

# Names of TensorFlow 1 in its modules such as tf.train, tf.nn and tf.image.
TF1_PARTS = (
    r"\w{1,40}Optimizer|Saver|get_or_create_global_step|get_global_step|create_global_step|MonitoredTrainingSession|"
    r"MonitoredSession|SessionRunHook|Supervisor|Coordinator|start_queue_runners|import_meta_graph|"
    r"exponential_decay|string_input_producer|batch|shuffle_batch|rnn_cell|static_rnn|dynamic_rnn|"
    r"bidirectional_dynamic_rnn|softmax_cross_entropy_with_logits_v2|xw_plus_b|max_pool_v1|resize_images|"
    r"resize_bilinear|resize_nearest_neighbor|resize_area|FileWriter|merge_all|image_summary|"
    r"sparse_softmax_cross_entropy|"
    r"softmax_cross_entropy|mean_squared_error|absolute_difference|xavier_initializer|simple_save|builder|loader|"
    r"tag_constants|signature_constants|tf_record_iterator|TFRecordReader|FastGFile|get_session|accuracy|"
    r"slice_input_producer|\w{1,30}_input_producer|\w{1,30}_decay|piecewise_constant|global_step|summary_iterator|"
    r"checkpoint_exists|write_graph|cosine_distance|compute_weighted_loss|add_loss|get_losses|log_loss|hinge_loss|"
    r"merge|scalar_summary|main_op|sparse_add|per_image_whitening|transpose_image|basic_rnn_seq2seq|raw_rnn"
)

MODELS = (
    KnownIssue(
        name="tensorflow-1",
        fault="request",
        patterns=(
            r"module 'tensorflow\.(?:contrib|_api\.v1)\.[\w.]{1,60}' has no attribute",
            r"module 'tensorflow' has no attribute '(?:" + TF1_NAMES + r")'",
            r"module 'tensorflow\._api\.v2\.(?:compat\.v2\.)?\w{1,30}' has no attribute '(?:" + TF1_PARTS + r")'",
            r"No module named 'tensorflow\.(?:contrib|examples|compat\.v1\.contrib)\b",
            r"module 'tensorflow\.compat\.v1' has no attribute 'contrib'",
            r"The Session graph is empty\. {1,40}Add operations to the graph before calling run",
            r"module '(?:tensorflow\.)?keras\.(?:api\.\S{0,20})?backend' has no attribute '(?:get_session|"
            r"set_session|tensorflow_backend)'",
            r"'RefVariable' object has no attribute '_id'",
            r"(?:undefined|meaningless|not supported|not compatible|should be a function)[^\n]{0,40}[Ee]ager execution",
        ),
        cause="The program is written for TensorFlow 1; this is TensorFlow 2, which no longer has that name or runs "
        "without sessions and graphs.",
        fix="Write `import tensorflow.compat.v1 as tf; tf.disable_v2_behavior()` in place of `import tensorflow as "
        "tf`, or convert it with `tf_upgrade_v2`. tf.contrib has no successor: contrib.slim is the package tf-slim. "
        "No image of tfimg has TensorFlow 1.",
        source="tensorflow/tensorflow#18538, tensorflow/tensorflow#31150",
        leads_to=("shadowed-module", "keras-moved"),
    ),
    KnownIssue(
        name="estimator",
        fault="request",
        patterns=(
            r"module 'tensorflow(?:\._api\.v2\.compat\.v[12]|\.compat\.v1)?' has no attribute 'estimator'",
            r"No module named 'tensorflow_estimator'",
            r"No module named 'tensorflow\.(?:python\.)?estimator",
        ),
        cause="The program uses Estimators, which TensorFlow removed in 2.16.",
        fix="Use an image with TensorFlow 2.15 or older (`tfimg build --tf 2.15`), or move the program to Keras.",
        source="tensorflow/tensorflow#63485",
        leads_to=("tensorflow-1",),
    ),
    KnownIssue(
        name="no-tensorflow",
        fault="request",
        patterns=(
            r"requires the TensorFlow library but it was not found|"
            r"None of PyTorch, TensorFlow >= 2\.0, or Flax have been found",
            r"No module named '?tensorflow'?\s{0,9}$",
        ),
        cause="The Python that runs the program is not the image's, and has no TensorFlow: a virtual environment, "
        "conda's or Debian's Python comes first on PATH, or PYTHONPATH or PYTHONHOME is set.",
        fix="Run the image's own: `python` on PATH, in /usr/local/bin, without `sudo` and without a virtual "
        "environment; or make that with `python -m venv --system-site-packages`. `which -a python` shows all.",
        source="tensorflow/tensorflow#42011",
    ),
    KnownIssue(
        name="mixed-install",
        fault="image",
        patterns=(
            r"No module named 'tensorflow\.(?:keras|python|core|tsl|compiler|lite|_api|dtensor|tools|security|"
            r"summary)'",
            r"No module named 'tensorflow\.(?:core|tsl|compiler|_api|dtensor)\.",
            r"No module named 'tensorflow\.python\.(?!keras|estimator)",
            r"cannot import name '\w{1,60}' from 'tensorflow' \(unknown location\)|"
            r"No module named 'tensorflow_core'",
            r"cannot import name '\w{1,60}' from 'tensorflow\.python\.(?!keras)",
            r"Failed to load the native TensorFlow runtime",
            r"module 'tensorflow\.python\.(?!keras)[\w.]{1,80}' has no attribute",
        ),
        cause="TensorFlow's files are incomplete or of two releases: one package was installed over another "
        "(tensorflow, tensorflow-cpu, tensorflow-intel, tf-nightly), an installation was interrupted, or a package "
        "imports a private module of another release.",
        fix="Build the image again without installing another TensorFlow over it: `tfimg build --requirements FILE` "
        "keeps the image's. By hand: `pip uninstall -y tensorflow tensorflow-cpu tf-nightly keras`, then install the "
        "one release. If the last file of the traceback is another package, take its release for this TensorFlow.",
        source="tensorflow/text#1053, tensorflow/tensorflow#34607",
        leads_to=("keras-moved",),
    ),
    KnownIssue(
        name="addons",
        fault="image",
        patterns=(
            r"tensorflow_addons/[\s\S]{0,2000}?(?:No module named '(?:tf_)?keras|"
            r"cannot import name '\w{1,60}' from '(?:tf_)?keras|has no attribute )",
        ),
        cause="TensorFlow Addons ended with TensorFlow 2.15: it imports modules of Keras 2 that Keras 3 does not have.",
        fix="Use an image with TensorFlow up to 2.15: `tfimg build --tf 2.15 --with tensorflow-addons`. On 2.16 and "
        "later, take the layers and losses of Keras or keras-hub in its place.",
        source="tensorflow/addons#2807",
        leads_to=("keras-3", "keras-moved", "companion-version"),
    ),
    KnownIssue(
        name="legacy-keras",
        fault="image",
        patterns=(
            r"has TF_USE_LEGACY_KERAS set to True, but you do not have the tf_keras package installed",
            r"No module named 'tf_keras'",
        ),
        cause="TF_USE_LEGACY_KERAS or an import requests Keras 2, and tf-keras is not installed.",
        fix="Unset TF_USE_LEGACY_KERAS; or, from TensorFlow 2.16 on, install tf-keras of the same minor version.",
        source="huggingface/transformers#40391",
        leads_to=("keras-3",),
    ),
    KnownIssue(
        name="keras-3",
        fault="image",
        patterns=(
            r"Found unexpected instance while processing input tensors for keras functional model",
            r"The layer \S{1,80} has never been called and thus has no defined (?:in|out)put",
            r"Another metric with the same name already exists|'tuple' object has no attribute 'layer'|"
            r"must be an instance of class Layer|Could not build a TypeSpec for KerasTensor|"
            r"Cannot convert a symbolic Keras input",
            r"ValueError: Unrecognized data type: x=|(?:fit|predict|"
            r"evaluate)\(\) got an unexpected keyword argument '(?:workers|"
            r"use_multiprocessing|max_queue_size)'",
            r"No module named 'keras\.api\b",
            r"No module named '?keras(?:\.engine)?'?\s{0,9}$",
            r"Your currently installed version of Keras is Keras 3",
            r"`?keras\.optimizers\.legacy`? is not supported in Keras 3",
            r"Keras cannot be imported\. Check that it is installed\.",
            r"A KerasTensor (?:is symbolic: it's a placeholder|cannot be used as input to a TensorFlow function)",
            r"Only instances of `?keras\.(?:layers\.)?Layer`? can be added to a Sequential model\. Received: "
            r"[^\n]{0,200}(?:hub|tf_keras)",
            r"`?keras\.(?:optimizers\.legacy|layers\.experimental)\S{0,60}` is not supported in Keras 3",
            r"module 'keras\._tf_keras\.keras[\w.]{0,60}' has no attribute",
            r"Could not interpret optimizer identifier: <",
        ),
        cause="The installed Keras is not the expected one: Keras 3 with a release up to 2.15, which needs Keras 2, "
        "or with a program that was written for Keras 2; a Keras that is older than TensorFlow; or none.",
        fix="Install Keras of TensorFlow's own minor version up to 2.15, Keras 3 from 2.16 on. For a program "
        "that needs Keras 2 on TensorFlow 2.16 or later, install tf-keras of the same minor version and set "
        "TF_USE_LEGACY_KERAS=1.",
        source="keras-team/keras#18141, keras-team/keras#18593, keras-team/keras#15175",
        leads_to=("keras-moved", "custom-objects"),
    ),
    KnownIssue(
        name="keras-3-model",
        fault="request",
        patterns=(
            r"(?:[Uu]nrecognized keyword arguments|[Kk]eyword argument not understood)[^\n]{0,40}'(?:batch_shape|"
            r"optional|"
            r"quantization_config|ragged|groups|keepdims)'(?!:)",
            r"(?:Unknown|Could not (?:locate|find|interpret)|Cannot interpret)[^\n]{0,60}'?DTypePolicy'?",
            r"parent module keras\.src\.(?:models|layers|ops|dtype_policies)\.\S{1,80} cannot be imported",
            r"Unrecognized keyword arguments passed to \w{1,60}: \{(?:'optional'|[^\n]{0,300}'quantization_config')",
            r"got an unexpected keyword argument 'quantization_config'",
            r"(?:Could not locate class|Unknown layer:) '?Functional\b",
            r"No module named 'keras\.src\.(?:models|ops|dtype_policies|random|tree)\b",
        ),
        cause="The model was saved by a newer Keras than this image's: by Keras 3 for Keras 2, or by a later Keras 3.",
        fix="Load it in an image with the TensorFlow that saved it, 2.16 or later for Keras 3 (`tfimg build --tf "
        "2.18`); or load it there and save its weights alone, or `model.export()` it as a SavedModel, which all read.",
        source="keras-team/keras#19282, tensorflow/tensorflow#66381, keras-team/keras#21928",
        leads_to=("keras-2-model", "custom-objects", "keras-moved"),
    ),
    KnownIssue(
        name="keras-2-model",
        fault="request",
        patterns=(
            r"Unrecognized keyword arguments passed to \w{1,60}: \{",
            r"Unrecognized keyword arguments:? \{?\[?'(?:batch_input_shape|input_dim|weights|lr)'",
            r"Could not (?:locate|deserialize)(?: function|) '(?:mse|mae|mape|msle|acc|lr)'",
            r"parent module keras\.(?:src\.)?engine\.\S{1,80} cannot be imported",
            r"Unable to revive model from config",
            r"'str' object has no attribute 'quantization_mode'",
            r"(?:class|layer|object) '?(?:DepthwiseConv2D|LSTM|GRU|BatchNormalization|"
            r"Conv2DTranspose)'?[^\n]{0,600}(?:'groups'|'time_major'|'renorm'|'implementation')",
        ),
        cause="A saved model, or the program, has arguments or a mixed precision of Keras 2, which Keras 3 of this "
        "image does not accept.",
        fix="Load it with Keras 2: an image with TensorFlow up to 2.15, or tf-keras (`tfimg build --with tf-keras`, "
        "TF_USE_LEGACY_KERAS=1). With Keras 3, `load_model(…, compile=False)` helps if only the loss, the metrics or "
        "the optimizer are at fault; otherwise build the model in code and load its weights.",
        source="keras-team/keras#19441, tensorflow/tensorflow#64685, pboutinaud/SHiVAi#12",
        leads_to=("custom-objects", "keras-moved"),
    ),
    KnownIssue(
        name="optimizer-arguments",
        fault="request",
        patterns=(
            r"Argument\(s\) not recognized: \{'(?:lr|decay|momentum|schedule_decay|name)|"
            r"\w' object has no attribute 'lr'|"
            r"from a legacy (?:TF-)?Keras optimizer into",
            r"`?decay`? is deprecated in the new Keras optimizer",
            r"(?:not a valid argument|unexpected keyword argument)[^\n]{0,40}(?:'lr'|'decay'|'schedule_decay')",
        ),
        cause="The program gives the optimizer an argument that it no longer has: `lr` is `learning_rate`, and "
        "`decay` a learning-rate schedule, since TensorFlow 2.11 and in Keras 3.",
        fix="Write `Adam(learning_rate=…)`, and for decay `keras.optimizers.schedules.ExponentialDecay`; up to "
        "TensorFlow 2.15 `tf.keras.optimizers.legacy.Adam` still takes it. A saved model loads with `compile=False`.",
        source="keras-team/keras#17145",
    ),
    KnownIssue(
        name="custom-objects",
        fault="request",
        patterns=(
            r"Unknown (?:layer|loss function|metric function|optimizer|activation function|object|initializer|"
            r"regularizer): ?'?\w",
            r"Could not locate (?:class|function) '\w{1,80}'\. Make sure custom classes are decorated",
            r"could not be deserialized properly\. {1,9}Please ensure that components|"
            r"Cannot deserialize object of type `",
            r"Unable to restore (?:custom )?object of class|Could not interpret (?:loss|metric|optimizer|activation|"
            r"initializer) (?:function )?identifier",
        ),
        cause="The saved model has a layer, loss or metric that the loading program does not know: one of its own, of "
        "a package that is not imported, or of another release of Keras.",
        fix="Import its package, or name it: `load_model(PATH, custom_objects={'NAME': CLASS})`, or register the "
        "class with `keras.saving.register_keras_serializable()`. `compile=False` leaves losses, metrics and the "
        "optimizer out. If the name is Keras' own, load it with the TensorFlow that saved it.",
        source="keras-team/keras#4871",
    ),
    KnownIssue(
        name="weights-only",
        fault="request",
        patterns=(
            r"No model (?:config )?found in (?:the |config )file|Checkpoint does not contain model configuration",
            r"model_config[\s\S]{0,600}?Cannot create group in read.only mode",
        ),
        cause="The file has the weights of a model and not the model: `save_weights`, or a ModelCheckpoint with "
        "save_weights_only, wrote it.",
        fix="Build the model in code and call `model.load_weights(FILE)`; or save it whole with `model.save(FILE)`.",
        source="keras-team/keras#10417",
    ),
    KnownIssue(
        name="lambda-layer",
        fault="request",
        patterns=(
            r"Requested the deserialization of a (?:Python lambda|`?lambda`? object|`?Lambda`? layer)",
            r"bad marshal data \(unknown type code\)",
        ),
        cause="The saved model has a Lambda layer, whose Python code is in the file: Keras loads that on request "
        "only, and only the Python version that wrote it can.",
        fix="If you trust the file, `load_model(PATH, safe_mode=False)`, in an image with the Python that saved it "
        "(`tfimg build --python VERSION`). Otherwise build the model in code and load its weights.",
        source="keras-team/keras#9595",
    ),
    KnownIssue(
        name="savedmodel-keras-3",
        fault="request",
        patterns=(
            r"File format not supported: filepath=|Unable to create a (?:TF-)?Keras model from SavedModel",
            r"legacy SavedModel format is not\s{1,3}supported by `load_model\(\)` in Keras 3",
        ),
        cause="Keras 3, of TensorFlow 2.16 and later, does not load SavedModels as Keras models, only `.keras` and "
        "`.h5` files; Keras 2 loads those that a Keras model wrote, and not `tf.saved_model.save`.",
        fix="For predictions, use `keras.layers.TFSMLayer(PATH, call_endpoint='serving_default')` or "
        "`tf.saved_model.load(PATH)`. To train it, load it in an image with TensorFlow up to 2.15, or with tf-keras "
        "and TF_USE_LEGACY_KERAS=1, and save it as `.keras` or `.h5`.",
        source="keras-team/keras#19077",
    ),
    KnownIssue(
        name="keras-3-save",
        fault="request",
        patterns=(
            r"Invalid filepath extension for saving\. Please add either a `\.keras` extension",
            r"The filepath provided must end in `\.(?:keras|weights\.h5)`",
            r"The filename must end in `\.weights\.h5`|expected a `\.(?:keras|weights\.h5)` extension",
            r"argument\(s\) are not supported(?: with the native Keras format)?: \['(?:options|save_format)'",
            r"`save_format` argument is deprecated in Keras 3",
        ),
        cause="Keras 3 saves a model as `.keras` or `.h5` and weights as `.weights.h5`; the name or option given is "
        "of Keras 2.",
        fix="Name the file so, without `save_format`; `model.export(PATH)` writes a SavedModel. To keep the program, "
        "use tf-keras with TF_USE_LEGACY_KERAS=1, or TensorFlow up to 2.15.",
        source="keras-team/keras#19122",
    ),
    KnownIssue(
        name="keras-moved",
        fault="request",
        patterns=(
            r"No module named '(?:tensorflow\.(?:python\.)?keras|(?:tf_)?keras\.(?:src|engine|utils|layers|legacy|"
            r"preprocessing|"
            r"wrappers|optimizers|saving|applications|backend|models|datasets|regularizers|initializers|objectives|"
            r"feature_column|optimizer_v2|dtensor))\b",
            r"cannot import name '\w{1,80}' from '(?:tensorflow\.(?:python\.)?keras[\w.]{0,80}|"
            r"(?:tf_)?keras\.[\w.]{1,80}')",
            r"module '(?:tensorflow\.(?:python\.)?keras|(?:tf_)?keras)(?:\.[\w.]{1,80})?' has no attribute",
            r"'(?:Sequential|Functional|Model)' object has no attribute '(?:predict_classes|predict_proba|"
            r"_make_predict_function|fit_generator|evaluate_generator|predict_generator|_get_distribution_strategy)'",
        ),
        cause="The program or a package imports a module or name of Keras that is private or that Keras has moved or "
        "removed: it was written for another release. tf-keras does not have all of them either.",
        fix="Import the public name from `tensorflow.keras` (`…utils.to_categorical`, `…layers.Dense`, "
        "`…optimizers.Adam`), or update the package in the traceback. `wrappers.scikit_learn` is the package "
        "scikeras. Otherwise use the image of the TensorFlow that it was written for: `tfimg build --tf 2.10` has "
        "most old names.",
        source="keras-team/keras#15586, tensorflow/tensorflow#60246",
    ),
    KnownIssue(
        name="old-for-python",
        fault="request",
        patterns=(
            r"No module named '(?:distutils(?:\.\w{1,30})?|imp|asyncore|asynchat|smtpd|cgi|pipes|imghdr|audioop|"
            r"telnetlib|crypt|sndhdr|lib2to3)'",
            r"module 'pkgutil' has no attribute 'Imp(?:Importer|Loader)'",
            r"module 'configparser' has no attribute 'SafeConfigParser'|"
            r"'ConfigParser' object has no attribute 'readfp'",
            r"module 'collections' has no attribute '(?:Mapping|MutableMapping|Iterable|Callable|Sequence|"
            r"Hashable|MutableSequence|OrderedDict_)'",
            r"cannot import name '(?:Mapping|MutableMapping|Iterable|Callable|Sequence|MutableSequence|Hashable|"
            r"MutableSet)' from 'collections'",
            r"module 'inspect' has no attribute '(?:getargspec|formatargspec)'",
            r"module 'time' has no attribute 'clock'",
            r"module 'asyncio' has no attribute 'coroutine'",
            r"module 'fractions' has no attribute 'gcd'",
        ),
        cause="A package is older than this image's Python, which removed a module or name that it uses: distutils, "
        "imp and pkgutil.ImpImporter in 3.12, inspect.getargspec in 3.11, collections.Mapping in 3.10.",
        fix="Install a newer release of the package; for ImpImporter, of setuptools, and for distutils setuptools "
        "itself helps. Otherwise use an image with an older Python: `tfimg build --tf VERSION --python 3.11` (or "
        "3.9); `tfimg matrix` lists what there is.",
        source="python/cpython#92584, pypa/setuptools#3935",
    ),
    KnownIssue(
        name="op-not-registered",
        fault="request",
        patterns=(
            r"Op type not registered '[^'\n]{1,100}' in binary",
            r"Didn't find op for builtin opcode|Encountered unresolved custom op: |"
            r"Regular TensorFlow ops are not supported by this interpreter",
            r"No (?:OpKernel was )?registered (?:to support Op )?'\w{1,80}'(?: OpKernel)? (?:for CPU devices|used by)",
            r"No op named \w{1,80} in defined operations",
        ),
        cause="The model uses an operation that this program does not have: of a companion package that is not "
        "imported, or of a newer TensorFlow than the one that loads it.",
        fix="Import the package whose operation it is before loading, such as tensorflow_text, or load with the "
        "TensorFlow that saved the model. TensorFlow Serving lacks operations of packages; for LiteRT, use a newer "
        "runtime or select TensorFlow ops when converting.",
        source="tensorflow/text#385, tensorflow/serving#1570",
        leads_to=("xla-unsupported",),
    ),
    KnownIssue(
        name="cloud-storage",
        fault="request",
        patterns=(
            r"Error executing an HTTP request: HTTP response code (?:401|403)",
            r"[Dd]efault credentials were not found|Could not automatically determine credentials|"
            r"Unable to locate credentials|Could not load the default credentials",
            r"File system scheme '(?:gs|s3|hdfs|https?|az)' not implemented",
        ),
        cause="TensorFlow does not reach the cloud's storage: the container has no credentials that may read or write "
        "the bucket, or no package for this kind of address.",
        fix="Mount the credentials and name them (`-e GOOGLE_APPLICATION_CREDENTIALS=/key.json`, AWS_ACCESS_KEY_ID "
        "and AWS_SECRET_ACCESS_KEY). For gs:// add tensorflow-io-gcs-filesystem, for s3:// tensorflow-io (imported "
        "before use): `tfimg build --with tensorflow-io`.",
        source="tensorflow/tensorflow#40302, tensorflow/io#1420",
    ),
    KnownIssue(
        name="file-missing",
        fault="request",
        patterns=(
            r"^\s{0,9}(?:\(\d\) )?(?:Not found: )?[\w./ -]{1,300}; No such file or directory",
            r"Found 0 (?:images|files) belonging to|No (?:images|files) found in directory|"
            r"ENOENT: no such file or directory, \w{1,20} '/",
            r"(?:cat|ls|cd|cp|mv|tar|head|unzip|source|\.): (?:cannot \w{1,20} )?'?/(?!usr/|opt/|proc/|sys/|dev/|tmp/|"
            r"etc/|var/)"
            r"[^\n']{1,200}'?: No such file",
            r"python[\d.]{0,5}: can't open file '[^'\n]{1,300}': \[Errno 2\]",
            r"FileNotFoundError: \[Errno 2\] (?:No such file or directory|"
            r"Unable to open file \([^\n]{1,200}\)): '/(?!usr/|opt/|proc/|sys/|dev/|tmp/|etc/|var/)",
            r"Unable to (?:synchronously )?create file \([Uu]nable to open file: name = [^\n]{1,300}errno = 2\b",
            r"NewRandomAccessFile failed to Create/Open: ",
            r"NotFoundError: (?:\{\{[^\n]{1,200}\}\} )?\S{1,300}; No such file or directory",
        ),
        cause="The program reads a file that is not in the container under that path: its folder is not mounted, or "
        "the path is that of the machine.",
        fix="Mount the folder and give its path in the container: `tfimg run IMAGE -v $PWD:/work -w /work -- python "
        "train.py`. In an image of your own, COPY the file.",
        source="tensorflow/models#1838",
        leads_to=("checkpoint-differs",),
    ),
    KnownIssue(
        name="model-missing",
        fault="request",
        patterns=(
            r"Expected model \S{1,80} to have an absolute path or URI",
            r"SavedModel file does not exist at: ",
            r"No versions of servable \S{1,80} found under base path",
            r"Could not find base path \S{1,200} for servable",
            r"(?:OSError|ValueError|IOError): No file or directory found at ",
            r"File not found: filepath=",
            r"Unable to (?:synchronously )?open file \([Uu]nable to open file: name = [^\n]{1,300}errno = 2\b",
            r"Could not find SavedModel|Servable not found for request|No (?:saved_model\.pb|SavedModel) (?:found|"
            r"file)",
        ),
        cause="No model is at the given path inside the container: the folder is not mounted there, the path is that "
        "of the machine or relative to another folder, or it lacks the folder with the version that a server expects "
        "(MODEL/1/saved_model.pb).",
        fix="`tfimg run IMAGE -v $PWD:/work -w /work -- ls -R MODEL` shows what the container sees; give the path as "
        "it is there.",
        source="tensorflow/serving#1433",
        leads_to=("file-missing",),
    ),
    KnownIssue(
        name="hub-cache",
        fault="request",
        patterns=(r"contains neither '?saved_model\.pb'? nor '?saved_model\.pbtxt",),
        cause="The folder has no SavedModel. In the cache of TensorFlow Hub (/tmp/tfhub_modules), a download was "
        "interrupted, or the files were deleted and their folder was not.",
        fix="Remove the folder that the message names and load it again; set TFHUB_CACHE_DIR to a folder that is "
        "kept, such as a volume.",
        source="tensorflow/hub#575",
    ),
    KnownIssue(
        name="savedmodel-tags",
        fault="request",
        patterns=(
            r"Could not find meta graph def matching supplied tags|"
            r"MetaGraphDef associated with tags [^\n]{1,100} could not be found in SavedModel",
        ),
        cause="The SavedModel has no graph with the tags that the loader requests; a server requests `serve`.",
        fix="`saved_model_cli show --dir PATH --all` lists the tags: give them to `tf.saved_model.load(PATH, "
        "tags=[…])`, or export the model again with `model.export(PATH)`.",
        source="tensorflow/serving#1719",
    ),
    KnownIssue(
        name="checkpoint-path",
        fault="request",
        patterns=(
            r"Unsuccessful TensorSliceReader constructor",
            r"Unable to open table file \S{1,300}: (?i:data.loss): not an sstable",
            r"Couldn't match files for checkpoint|The passed save_path is not a valid checkpoint",
            r"Can't load save_path when it is None",
        ),
        cause="No checkpoint is at the given path: it is the common start of the files' names (model.ckpt-100 of "
        "model.ckpt-100.index and model.ckpt-100.data-00000-of-00001), not one of the files, and is that inside the "
        "container.",
        fix="Give the path without .index, .data-… or .meta, or `tf.train.latest_checkpoint(FOLDER)`; `ls` in the "
        "container shows whether the files are there.",
        source="tensorflow/tensorflow#7082, tensorflow/models#2675",
        leads_to=("damaged-record",),
    ),
    KnownIssue(
        name="checkpoint-differs",
        fault="request",
        patterns=(
            r"[Ll]ayer (?:count mismatch|'[^'\n]{1,100}' (?:expected \d|was never built))|[Ww]eight count mismatch for",
            r"Shape mismatch in (?:layer|model|\S{1,80}for weight)|with a weight list of length \d|"
            r"provided weight shape",
            r"Restoring from checkpoint failed\.|requires shapes of both tensors to match",
            r"weight file containing \d{1,5} layers into a model with|"
            r"Nothing (?:except the root object )?matched a checkpointed",
            r"objects? could not be loaded\. Example error|"
            r"Unable to load weights saved in HDF5 format into a subclassed",
            r"Key \S{1,200} not found in checkpoint",
        ),
        cause="The saved weights are of another model than the program builds: names, numbers or shapes of its "
        "variables differ, by another architecture, other layers or another release of the library.",
        fix="Build the model exactly as it was when it was saved, with the same releases; "
        "`tf.train.list_variables(PATH)` lists what the checkpoint has. `status.expect_partial()` is for a part of it.",
        source="tensorflow/tensorflow#7224",
    ),
    KnownIssue(
        name="damaged-record",
        fault="request",
        patterns=(
            r"Data loss: \w|DataLossError[^\n]{0,40}: \w",
            r"(?:corrupted|truncated) record at \d{1,20}",
            r"\bDATA_LOSS: \w",
        ),
        cause="A file of TFRecords, or of a checkpoint, is damaged or incomplete: a copy or a writer was interrupted, "
        "it is a Git LFS pointer or no TFRecord, or it is compressed and read as if it were not.",
        fix="Compare the file's size or checksum with the original, and copy or write it again, with the writer "
        "closed. For gzip, read with `tf.data.TFRecordDataset(FILE, compression_type='GZIP')`.",
        source="tensorflow/tensorflow#13463",
    ),
    KnownIssue(
        name="damaged-file",
        fault="request",
        patterns=(
            r"InvalidArgumentError: [^\n]{0,200}Input is empty\.",
            r"Unknown image file format\. One of|Invalid JPEG data|cannot identify image file|image file is truncated",
            r"Incomplete or corrupted file detected|NonMatchingChecksumError|Filepath is not an hdf5 file",
            r"Unable to (?:synchronously )?(?:open|create) file \((?:file signature not found|"
            r"Unable to find a valid file signature|truncated file|"
            r"bad object header|bad symbol table|unable to read superblock)",
            r"BadZipFile: |BadGzipFile: |Compressed file ended before the end-of-stream|"
            r"UnpicklingError: (?:invalid load key|"
            r"pickle data was truncated)|tarfile\.ReadError: |zlib\.error: Error -3",
            r"Unable to (?:synchronously )?open object \(bad (?:local|object) ",
            r"(?:Error parsing message|DecodeError)[^\n]{0,60}(?:saved_model|SavedModel|tensorflow)",
        ),
        cause="The file is not of the expected format, or is not whole: a download was interrupted or is an error "
        "page, or it is a Git LFS pointer (a text of 130 bytes); a `.keras` file is a zip, which Keras before 2.12 "
        "does not read, an `.h5` file is HDF5.",
        fix="`ls -l FILE` and `head -c 200 FILE` show what it is. Download it again, run `git lfs pull`, or load it "
        "with the Keras that wrote it.",
        source="keras-team/keras#10417",
    ),
    KnownIssue(
        name="hdf5-lock",
        fault="host",
        patterns=(
            r"unable to lock file, errno = \d{1,3}",
            r"[Uu]nable to (?:synchronously )?(?:open|create) file \(file is already open for",
        ),
        cause="HDF5 cannot lock the file: another process has it open, such as a notebook, or the file system of the "
        "mounted folder has no locks (NFS, Lustre, some volumes).",
        fix="Close the other process. Where the file system has no locks, set HDF5_USE_FILE_LOCKING=FALSE: `tfimg run "
        "-e HDF5_USE_FILE_LOCKING=FALSE IMAGE …`.",
        source="h5py/h5py#1101",
        leads_to=("no-threads", "folder-permission"),
    ),
)
